import json
from pathlib import Path

import pytest

from benchmarks import cli
from benchmarks.one_machine import input_speed
from tests.cifar10 import record_files


def test_the_input_is_measured_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(input_speed, "_WINDOW_SECS", 0.01)
    for split in ("train", "validation", "eval"):
        record_files.write_numbered(tmp_path, split, 100)
    words = ["--train-batch-size=16", "--num-layers=8", f"--data-dir={tmp_path}"]
    assert cli.main(["input", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["batch_size"] == 16
    assert 0 < found["lowest"] <= found["images_per_sec"] <= found["highest"]
    assert found["split_bytes"] == 308_000  # 100 images of 3,072 bytes, 8 more for each label
    assert found["peak_growth_bytes"] >= 0
    assert found["machine"].endswith("TensorFlow 2.15.1")
