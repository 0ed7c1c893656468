"""Each benchmark for users once, short, with real training. Their figures are not looked at."""

import json
from pathlib import Path

import pytest

from benchmarks import advise, cli
from benchmarks.advised_ways import ways_on_this_machine
from benchmarks.namespaces import why_not
from tests.launch.launcher import make_records

pytestmark = pytest.mark.system
SMALL = ("--num-layers=8", "--train-batch-size=16")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_records(tmp_path_factory.mktemp("benchmarks"))


def test_ours_is_compared_with_every_peer_that_is_here(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--networks", "resnet-20", "--precisions", "fp32", "--batch-size", "16"]
    words += ["--rounds", "1", "--steps", "10", f"--data-dir={data}", f"--out={tmp_path}"]
    assert cli.main(["compare", *words]) == 0
    assert "| resnet-20 | fp32 | MirroredStrategy |" in capsys.readouterr().out
    runs = json.loads((tmp_path / "compare.json").read_text())["runs"]
    assert [run["way"] for run in runs][:3] == [
        "train_and_evaluate",
        "Keras fit",
        "MirroredStrategy",
    ]
    assert min(run["images_per_sec"] for run in runs) > 0
    assert (tmp_path / "compare.png").stat().st_size > 5000


def test_ways_are_tried_and_the_best_one_is_named(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    some = [way for way in ways_on_this_machine() if way.ps < 2 and not way.sync]
    monkeypatch.setattr(advise, "ways_on_this_machine", lambda: some)
    monkeypatch.setenv("COLUMNS", "200")
    words = ["--rounds", "1", "--seconds", "1", "--out", str(tmp_path / "advised.yaml")]
    assert cli.main(["advise", *words, "--", *SMALL, f"--data-dir={data}"]) == 0
    shown = capsys.readouterr().out
    assert "one process" in shown
    assert "2 trainers and 1 ps here" in shown
    assert "best: " in shown
    assert "--num-layers=8 --train-batch-size=16" in shown or "--data-dir" in shown


def test_the_model_is_fitted_and_checked_over_a_slow_link(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if why_not():
        pytest.skip(str(why_not()))
    words = ["--seconds", "2", "--links", "100Mbit+10ms", "--shapes", "1x1"]
    assert cli.main(["check-scale", *words, "--", *SMALL, f"--data-dir={data}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (found,) = (json.loads(line) for line in lines if line.startswith("{"))
    # 0.6 MB at 12.5 MB/s are 50 ms, and two round trips 40 ms: no network, 3 times as fast.
    assert 50 < float(found["measured"]) < 16 / 0.09
    assert 0.5 < float(found["predicted / measured"]) < 2
