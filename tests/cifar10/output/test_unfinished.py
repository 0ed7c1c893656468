"""What a kill in the middle of a checkpoint leaves is removed, and nothing else is."""

from pathlib import Path

import pytest
import tensorflow.compat.v1 as tf

from cifar10.errors import UnreadableError
from cifar10.output.recovery import remove_unfinished
from tests.unprivileged import open_folder, unprivileged


def test_half_written_files_are_removed(tmp_path: Path) -> None:
    for name in ("best", "logs"):
        (tmp_path / name).mkdir()
    kept = [
        "checkpoint",
        "model.ckpt-150.data-00000-of-00001",
        "model.ckpt-150.index",
        "model.ckpt-75.index.damaged",
        "notes.tempstate1",
        "notes.part",
        "best/model.ckpt-150.index",
    ]
    unfinished = [
        "checkpoint.tmp0a1b2c3d4e5f",
        "model.ckpt-150.data-00000-of-00001.tempstate18402367563360792711",
        "model.ckpt-300.index.tempstate7",
        "best/model.ckpt-150.data-00000-of-00001.tempstate18402367563360792711",
        "best/best.json.0123abcd.part",
        "logs/.write-probe.0123abcd.part",
    ]
    for name in kept + unfinished:
        (tmp_path / name).touch()
    remove_unfinished(str(tmp_path), str(tmp_path / "logs"))
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(kept)


def test_a_file_that_is_renamed_meanwhile_is_passed_over(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "b.0123abcd.part").touch()
    names = ["a.0123abcd.part", "b.0123abcd.part"]
    monkeypatch.setattr(tf.io.gfile, "listdir", lambda folder: names)
    remove_unfinished(str(tmp_path), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_may_not_be_listed_is_refused() -> None:
    with open_folder() as folder:
        (folder / "best").mkdir(mode=0)
        with unprivileged(), pytest.raises(UnreadableError, match="/best cannot be read: Perm"):
            remove_unfinished(str(folder), str(folder))
