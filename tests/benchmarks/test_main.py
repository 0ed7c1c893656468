"""Benchmarks: their command lines, and rates from the lines that training prints."""

import itertools
import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks import advise, tables
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.advise import ways_on_this_machine
from benchmarks.arguments import BenchmarkError
from benchmarks.compare import last_rate
from benchmarks.runs import Line, progress_lines, steady
from tests.cifar10.program import make_records

pytestmark = pytest.mark.slow  # Some benchmarks load TensorFlow.


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_every_benchmark_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: python -m benchmarks {name} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sprint"], "no benchmark sprint; there are compare, advise"),
        (["advise", "--", "--sync=false"], "--sync is what this benchmark decides"),
        (["compare", "--", "--num-layers=8"], "--num-layers is what this benchmark decides"),
        (["advise", "--python=python3"], "--python and --workdir go with --hosts"),
        (["scale", "--constants", "none.json"], "--constants none.json: .* --save writes"),
    ],
)
def test_a_mistake_is_one_clear_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert re.search(message, line)


def test_a_peers_rate_is_in_its_last_line_and_a_failure_in_its_last_error() -> None:
    printing = "print('warming up'); print('{\"images_per_sec\": 12.5}')"
    assert last_rate([sys.executable, "-c", printing]) == 12.5
    with pytest.raises(BenchmarkError, match="failed: out of memory$"):
        last_rate([sys.executable, "-c", "import sys; sys.exit('oh\\nout of memory')"])


def line(step: int, rate: str = "9") -> str:
    """Returns a progress line as cifar10_main.py prints it."""
    return (
        f"epoch 0.1/9  step {step:,}/2,000  loss 2.3  lr 0.1  {rate} images/s (5 here)  1s left\n"
    )


def test_progress_lines_have_a_step_and_the_rate_of_the_whole_job() -> None:
    text = f"training to step 2,000\n{line(1_999, '1,024')}saved: here\n{line(2_000, '9.5')}epoch 0"
    assert progress_lines(text) == [Line(1_999, 1024.0), Line(2_000, 9.5)]


def test_the_steady_part_begins_after_all_warm_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda secs: None)
    monkeypatch.setattr("time.monotonic", itertools.count().__next__)
    chief, worker, begun = [""], [""], []
    steps = itertools.count(1)

    def outputs() -> list[str]:
        step = next(steps)
        chief[0] += line(step)
        worker[0] += line(step) * (step in (5, 8))
        return [chief[0], worker[0]]

    found = steady(outputs, lambda: True, 2.0, 3, lambda: begun.append(len(chief[0])))
    assert [progress.step for progress in found] == [8, 9, 10, 11, 12]
    assert len(begun) == 1


def test_the_documents_tables_are_those_of_the_results(root: Path) -> None:
    assert [path.name for path in tables.renewed(root)] == [], "run python -m benchmarks tables"


def test_every_result_is_shown_by_a_document(root: Path) -> None:
    shown = {name for path in tables.documents(root) for name in tables.names(path.read_text())}
    kept = {path.stem for path in (root / "benchmarks" / "results").glob("*.json")}
    assert kept == shown
    assert len(kept) >= 10


# Short runs with real training, whose rates do not matter.

SMALL = ("--num-layers=8", "--train-batch-size=16")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_records(tmp_path_factory.mktemp("benchmarks") / "data", 1_000)


@pytest.mark.system
def test_ours_is_compared_with_every_peer_that_is_here(data: Path, tmp_path: Path) -> None:
    words = ["--networks", "resnet-20", "fastnet", "--precisions", "fp32", "--batch-size", "16"]
    words += ["--rounds", "1", "--steps", "4", f"--data-dir={data}", f"--out={tmp_path}/c.json"]
    assert main(["compare", *words]) == 0
    rows = json.loads((tmp_path / "c.json").read_text())["rows"]
    assert [row["network"] for row in rows] == ["resnet-20, 16", "fastnet, 16"]
    assert min(row[way][0] for row in rows for way in ("ours", "keras", "mirrored")) > 0


@pytest.mark.system
def test_ways_are_tried_and_the_best_one_is_named(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = [way for way in ways_on_this_machine(2) if way.ps < 2 and not way.sync]
    monkeypatch.setattr(advise, "ways_on_this_machine", lambda cores: some)
    words = ["--rounds", "1", "--seconds", "1", "--out", str(tmp_path / "advised.yaml")]
    assert main(["advise", *words, "--", *SMALL, f"--data-dir={data}"]) == 0
    shown = capsys.readouterr().out
    assert "| one process | by itself | " in shown
    assert "| 2 trainers and 1 ps here | asynchronous | " in shown
    assert "\nbest: " in shown
    assert {*SMALL, f"--data-dir={data}"} <= set(shown.splitlines()[-1].split())


@pytest.mark.system
def test_a_step_with_a_parameter_server_is_timed(data: Path, tmp_path: Path) -> None:
    words = ["--rounds", "1", "--seconds", "1", "--num-layers", "8", f"--out={tmp_path}/t.json"]
    assert main(["cluster", "tax", *words, f"--data-dir={data}"]) == 0
    (row,) = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert min(row["with_ps_ms"], row["alone_ms"], *row["cpu"]) > 0


@pytest.mark.system
def test_towers_are_compared(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rounds", "1", "--seconds", "1", "--", *SMALL, f"--data-dir={data}"]
    assert main(["towers", *words]) == 0
    assert "(the rule)" in capsys.readouterr().out
