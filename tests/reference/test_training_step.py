"""Compares the pipeline's own training graphs with the reference."""

import pytest

from tests.reference.cases import CASES, Case
from tests.reference.measure import measure


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_three_steps_are_those_of_the_papers(case: Case, request: pytest.FixtureRequest) -> None:
    if case.kernels != "tensorflow":
        request.getfixturevalue("compiled_kernels")
    if case.impossible:
        pytest.skip(case.impossible)
    errors = measure(case)
    assert errors.beyond(case.tolerance) == {}, errors
