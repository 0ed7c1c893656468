"""The reference has no code of the pipeline."""

import pathlib
import re

import pytest

from tests.reference import networks, rules, trajectory


@pytest.mark.parametrize("module", [networks, rules, trajectory], ids=lambda one: one.__name__)
def test_the_reference_has_nothing_of_the_pipeline(module) -> None:
    source = pathlib.Path(module.__file__).read_text(encoding="utf-8")
    assert re.findall(r"(?:from|import) (?:cifar10|data_prep|launch|benchmarks)", source) == []
