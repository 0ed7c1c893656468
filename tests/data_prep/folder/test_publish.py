"""Records stay whole whatever operation on the disk fails, and whenever the machine loses power."""

from pathlib import Path

import pytest

from cifar10 import schema
from data_prep import cli
from data_prep.folder import publish, verify
from tests import failing_disk
from tests.failing_disk import every_rename_is_synced, failures_of

pytestmark = pytest.mark.slow


def _build(source: Path, out: Path, seed: int) -> int:
    return cli.main(["--source", str(source), "--out", str(out), "--seed", str(seed)])


def _records(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.glob("*.tfrecords")}


def test_whatever_fails_readers_see_whole_records_and_the_next_run_completes_them(
    python_source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, out = (tmp_path / name for name in ("old", "new", "out"))
    for folder, seed in ((old, 1), (new, 2), (out, 1)):
        assert _build(python_source, folder, seed) == 0
    assert _records(old) != _records(new)
    incomplete = 0
    for _ in failures_of(lambda: _build(python_source, out, 2)):
        if (out / schema.INCOMPLETE_NAME).exists():
            incomplete += 1
        else:
            assert verify.verify(out).damages == []
            assert _records(out) in (_records(old), _records(new))
        assert _build(python_source, out, 2) == 0
        assert _records(out) == _records(new)
        assert _build(python_source, out, 1) == 0
    assert _records(out) == _records(new)
    assert incomplete >= 5  # while old records are removed and new ones get their names
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("was_incomplete", [False, True])
def test_a_disk_without_room_for_the_marker_leaves_the_folder_as_it_was(
    was_incomplete: bool, small_disk: Path
) -> None:
    for name in ("train.tfrecords", schema.MANIFEST_NAME):
        (small_disk / name).write_text("old")
    if was_incomplete:
        (small_disk / schema.INCOMPLETE_NAME).touch()
    staging = publish.start_staging(small_disk)
    for name in ("train.tfrecords", schema.MANIFEST_NAME):
        (staging / name).write_text("new")
    failing_disk.fill(small_disk)
    with pytest.raises(OSError, match="No space left"):
        publish.publish(small_disk)
    assert publish.is_incomplete(small_disk) == was_incomplete
    for name in ("train.tfrecords", schema.MANIFEST_NAME):
        assert (small_disk / name).read_text() == "old"


def test_records_and_manifest_are_on_disk_before_they_are_named(
    python_source: Path, tmp_path: Path
) -> None:
    with every_rename_is_synced() as renamed:
        assert _build(python_source, tmp_path, 1) == 0
    assert [Path(path).name for path in renamed] == [
        "INCOMPLETE",
        "eval.tfrecords",
        "train.tfrecords",
        "validation.tfrecords",
        "manifest.json",
    ]
