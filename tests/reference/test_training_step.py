"""Compares the pipeline's own training graphs with the reference."""

from typing import Any

import pytest

from tests.reference.cases import CASES, Case
from tests.reference.measure import measure


def params(case: Case) -> Any:
    marks = [] if case.quick else [pytest.mark.system]
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", map(params, CASES))
def test_three_steps_are_those_of_the_papers(case: Case, request: pytest.FixtureRequest) -> None:
    if case.kernels != "tensorflow":
        request.getfixturevalue("compiled_kernels")
    if case.impossible:
        pytest.skip(case.impossible)
    errors = measure(case)
    assert errors.beyond(case.tolerance) == {}, errors
