"""The pipeline's own training graphs against the reference."""

import pytest

from cifar10.cpu import cpu_flags
from tests.reference.cases import CASES, Case
from tests.reference.measure import measure


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_three_steps_are_those_of_the_papers(case: Case, request: pytest.FixtureRequest) -> None:
    if case.kernels == "own":
        request.getfixturevalue("compiled_kernels")
    if case.precision == "bf16" and not cpu_flags() & {"avx512_bf16", "amx_bf16"}:
        pytest.skip("--precision bf16 needs a CPU with avx512_bf16 or amx_bf16")
    errors = measure(case)
    assert errors.beyond(case.tolerance) == {}, errors
