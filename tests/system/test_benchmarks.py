"""Runs compare, advise, towers and cluster briefly with real training; ignores their figures."""

import json
from pathlib import Path

import pytest

from benchmarks import advise
from benchmarks.__main__ import main
from benchmarks.advise import ways_on_this_machine
from tests.cifar10 import program

pytestmark = pytest.mark.system
SMALL = ("--num-layers=8", "--train-batch-size=16")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program.make_records(tmp_path_factory.mktemp("benchmarks") / "data", 1_000)


def test_ours_is_compared_with_every_peer_that_is_here(data: Path, tmp_path: Path) -> None:
    words = ["--networks", "resnet-20", "fastnet", "--precisions", "fp32", "--batch-size", "16"]
    words += ["--rounds", "1", "--steps", "4", f"--data-dir={data}", f"--out={tmp_path}/c.json"]
    assert main(["compare", *words]) == 0
    rows = json.loads((tmp_path / "c.json").read_text())["rows"]
    assert [row["network"] for row in rows] == ["resnet-20, 16", "fastnet, 16"]
    assert min(row[way][0] for row in rows for way in ("ours", "keras", "mirrored")) > 0


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


def test_a_step_with_a_parameter_server_is_timed(data: Path, tmp_path: Path) -> None:
    words = ["--rounds", "1", "--seconds", "1", "--num-layers", "8", f"--out={tmp_path}/t.json"]
    assert main(["cluster", "tax", *words, f"--data-dir={data}"]) == 0
    (row,) = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert min(row["with_ps_ms"], row["alone_ms"], *row["cpu"]) > 0


def test_towers_are_compared(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rounds", "1", "--seconds", "1", "--", *SMALL, f"--data-dir={data}"]
    assert main(["towers", *words]) == 0
    assert "(the rule)" in capsys.readouterr().out
