"""The judge of the other tests notices each way in which a parser can break."""

import random
from pathlib import Path

import pytest

from tests.fuzz import corpus, mutate, repair, session, trial
from tests.fuzz.data_parsers import PARSERS as DATA_PARSERS
from tests.fuzz.parser import Parser


class _RefusedError(Exception):
    """An error by which a parser may refuse."""


def _burn(data: bytes) -> None:
    while data:
        pass


def _say(data: bytes) -> None:
    if data:
        raise _RefusedError(data.decode())


def _parser(call: object, name: str = "x") -> Parser:
    run = call if callable(call) else None
    assert run is not None
    return Parser(
        name,
        lambda: [b""],
        lambda data, _: run(data) if data else None,
        (_RefusedError,),
        most_bytes=1 << 20,
        most_secs=0.2,
    )


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda data: int(data), "ValueError: invalid literal"),
        (_burn, "more than 0.2 s of processor time"),
        (lambda data: len(bytearray(3 << 20)), "3 MiB of Python objects, more than 1 MiB"),
        (_say, "the message of _RefusedError is not one line"),
    ],
    ids=["an exception", "time", "memory", "a message of two lines"],
)
def test_what_breaks_a_parser_is_a_fault(call: object, fault: str) -> None:
    found = trial.fault_of(_parser(call, fault), b"a\nb")
    assert found is not None
    assert fault in found


def test_a_refusal_and_an_answer_are_no_faults() -> None:
    assert trial.fault_of(_parser(_say, "refuses"), b"no") is None
    assert trial.fault_of(_parser(len, "answers"), b"yes") is None


@pytest.mark.parametrize(
    ("form", "example"),
    [
        (mutate.of_bytes, b"\0\1\2\3 12"),
        (mutate.of_text, "a: b\nü".encode()),
        (mutate.of_json, b'{"a": [1, {"b": "c"}]}'),
        (mutate.of_lines, b'{"a": 1}\n{"b": 2}\n'),
        (mutate.of_words, b"--a=b\0c"),
    ],
    ids=["bytes", "text", "JSON", "lines", "words"],
)
def test_inputs_differ_from_the_example_and_follow_the_seed(
    form: mutate.Form, example: bytes
) -> None:
    made = [form(random.Random(seed), [example]) for seed in range(200)]
    assert made == [form(random.Random(seed), [example]) for seed in range(200)]
    assert len(set(made)) > 100
    assert max(map(len, made)) <= mutate.LONGEST


@pytest.mark.parametrize(
    ("name", "fix"),
    [("image", repair.png), ("tar", repair.tar), ("tfrecords", repair.tfrecords)],
)
def test_repairs_leave_valid_files_alone_and_mend_changed_ones(name: str, fix: object) -> None:
    assert callable(fix)
    (parser,) = (one for one in DATA_PARSERS if one.name == name)
    example = parser.examples()[0]
    assert fix(example) == example
    changed = bytearray(example)
    place = {"image": 43, "tar": 0, "tfrecords": 400}[name]  # inside what a checksum covers
    changed[place] ^= 1
    assert fix(bytes(changed)) != bytes(changed)


def test_an_input_that_ends_the_process_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    found = session.run_apart(DATA_PARSERS[0], 0.1, 1)
    assert [fault[:30] for _, fault in found.faults.values()] == ["its process ended with 1: b''"]


def test_a_session_counts_its_inputs(tmp_path: Path) -> None:
    found = session.run_apart(DATA_PARSERS[0], 0.3, 1)
    assert found.tried > 0
    assert found.faults == {}


def test_a_stored_input_is_an_input_of_its_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    path = corpus.keep("tar", b"broken")
    assert corpus.inputs("tar") == [path]
    assert path.read_bytes() == b"broken"
