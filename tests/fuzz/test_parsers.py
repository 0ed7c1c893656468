"""No parser breaks on hostile input: it refuses it in one line, soon, and in little memory.

The inputs are the same in each run. `python -m tests.fuzz` tries others for as long as it is told.
"""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import corpus, trial
from tests.fuzz.parser import Parser
from tests.fuzz.table import PARSERS

_INPUTS = 10  # of each parser

_ROWS = [
    pytest.param(parser, marks=pytest.mark.slow if parser.needs_tensorflow else (), id=parser.name)
    for parser in PARSERS
]
_KEPT = [
    pytest.param(
        parser,
        path,
        marks=pytest.mark.slow if parser.needs_tensorflow else (),
        id=f"{parser.name}-{path.name}",
    )
    for parser in PARSERS
    for path in corpus.inputs(parser.name)
]


@pytest.mark.parametrize("parser", _ROWS)
def test_a_parser_takes_its_examples(parser: Parser) -> None:
    for data in parser.examples():
        assert trial.fault_of(parser, data) is None


@pytest.mark.parametrize(("parser", "path"), _KEPT)
def test_what_once_broke_a_parser_is_refused_or_read(parser: Parser, path: Path) -> None:
    assert trial.fault_of(parser, path.read_bytes()) is None


@pytest.mark.parametrize("parser", _ROWS)
def test_a_parser_refuses_hostile_input_in_one_line(parser: Parser) -> None:
    @settings(
        max_examples=_INPUTS,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def try_inputs(rng: random.Random) -> None:
        data = trial.make_input(parser, rng)
        fault = trial.fault_of(parser, data)
        assert fault is None, f"{data[:200]!r}: {fault}"

    try_inputs()


def test_every_folder_of_the_corpus_has_a_parser() -> None:
    folders = {path.name for path in corpus.FOLDER.iterdir() if path.is_dir()}
    assert folders <= {parser.name for parser in PARSERS}
