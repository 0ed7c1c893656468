"""A dry run: it says what training would do, measures some of its steps, and writes nothing."""

import pathlib
import re
import time

import pytest

from cifar10 import dry_run
from cifar10.config.flags import parse
from cifar10.errors import Stopped
from cifar10.host.process import StopRequest
from cifar10.train import train_and_evaluate
from tests.cifar10.hooked import stopped


def test_a_dry_run_says_what_is_left_to_train_and_writes_nothing(
    tutorial_data: pathlib.Path,
    tmp_path: pathlib.Path,
    pools_stay: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(dry_run, "_TIMED_SECS", 0.01)
    output, log_dir = tmp_path / "output", tmp_path / "log"
    words = ["--model=mlp", "--hidden-units=4", "--num-towers=1", "--train-batch-size=10"]
    words += ["--checkpoint-steps=5", f"--data-dir={tutorial_data}", f"--output-dir={output}"]
    train_and_evaluate(parse([*words, "--train-steps=10"]), StopRequest(), time.monotonic())
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    capsys.readouterr()
    config = parse([*words, f"--log-dir={log_dir}", "--train-steps=22", "--dry-run"])
    dry_run.dry_run(config, StopRequest())
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == f"continuing at step 10 to step 22; output: {output}"
    assert lines[3:4] == ["12,342 parameters, 2.2 epochs, 3 checkpoints, one every 5 steps"]
    measured = r"[0-9,]+ images/s in [0-9,]+ steps; a validation takes [0-9.]+ s; [0-9.]+ GiB of"
    assert re.match(measured, lines[4]), lines
    assert lines[5].startswith("training takes about ")
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before
    assert not log_dir.exists()
    with pytest.raises(Stopped):
        dry_run.dry_run(config, stopped())
