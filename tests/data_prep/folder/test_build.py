import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cifar10 import schema
from data_prep import cli
from data_prep.errors import OutputError
from data_prep.folder import publish, verify
from tests.data_prep import made

ROOT = Path(__file__).resolve().parents[3]


def _convert(source: Path, out: Path, *flags: str) -> int:
    return cli.main(["--source", str(source), "--out", str(out), *flags])


def _manifest(out: Path) -> Any:
    return json.loads((out / "manifest.json").read_text())


def _snapshot(out: Path) -> dict[str, tuple[int, int]]:
    return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in out.glob("[!.]*")}


def test_the_manifest_says_how_images_were_resized(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree, out = made.image_folder(tmp_path / "images"), tmp_path / "out"
    Image.new("RGB", (50, 40)).save(tree / "train" / "cat" / "photo.webp")
    assert _convert(tree, out, "--resize", "pad") == 0
    assert "Source: images (image-tree, --resize pad for images of other" in capsys.readouterr().out
    assert _manifest(out)["options"]["resize"] == "pad"
    assert _convert(tree, out, "--resize", "pad") == 0
    assert "up to date" in capsys.readouterr().out
    assert _convert(tree, out, "--resize", "crop") == 0
    assert "the options changed" in capsys.readouterr().out
    assert _manifest(out)["options"]["resize"] == "crop"


def test_a_build_says_how_many_images_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree, out = made.image_folder(tmp_path / "images"), tmp_path / "out"
    assert _convert(tree, out) == 0
    assert "Left out" not in capsys.readouterr().out
    for name in ("a.png", "b.png"):
        (tree / name).write_bytes(made.png())
    assert _convert(tree, out, "--force") == 0
    line = "\nLeft out, since they are in no folder of a split: 2 image files.\n"
    assert line in capsys.readouterr().out


def test_the_manifest_of_a_version_without_resizing_is_up_to_date(
    python_source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _convert(python_source, tmp_path) == 0
    manifest = _manifest(tmp_path)
    del manifest["options"]["resize"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert _convert(python_source, tmp_path) == 0
    assert "up to date" in capsys.readouterr().out


def test_the_manifest_has_the_keys_that_training_reads(built: Path) -> None:
    manifest = _manifest(built)
    assert list(manifest) == [
        "format_version",
        "source",
        "class_names",
        "seed",
        "options",
        "splits",
        "channel_mean",
        "channel_deviation",
    ]
    assert manifest["format_version"] == 1
    assert manifest["source"]["kind"] == "cifar-10-python"
    assert manifest["source"]["name"] == "cifar-10-batches-py"
    assert len(manifest["source"]["fingerprint"]) == 64
    assert manifest["class_names"] == list(schema.CLASS_NAMES)
    assert {name: split["records"] for name, split in manifest["splits"].items()} == {
        "train": 90,
        "validation": 10,
        "eval": 20,
    }
    (file,) = manifest["splits"]["validation"]["files"]
    assert (file["name"], file["records"], file["bytes"]) == ("validation.tfrecords", 10, 31_260)
    assert manifest["options"] == {"validation_size": None, "shards": 1, "resize": None}
    assert all(100 < value < 155 for value in manifest["channel_mean"])
    assert str(built) not in (built / "manifest.json").read_text()


def test_python_and_binary_archives_give_the_same_records(built: Path, tmp_path: Path) -> None:
    source = made.binary_folder(tmp_path / "cifar-10-batches-bin")
    assert _convert(source, tmp_path / "out") == 0
    for name in ("train.tfrecords", "validation.tfrecords", "eval.tfrecords"):
        assert (tmp_path / "out" / name).read_bytes() == (built / name).read_bytes()


def test_no_validation_size_leaves_all_images_to_training(
    python_source: Path, tmp_path: Path
) -> None:
    assert _convert(python_source, tmp_path, "--validation_size", "0") == 0
    splits = _manifest(tmp_path)["splits"]
    assert splits["train"]["records"] == 100
    assert splits["validation"] == {"records": 0, "files": []}
    assert not list(tmp_path.glob("validation*"))
    assert verify.verify(tmp_path).damages == []


def test_a_second_run_does_nothing(
    python_source: Path, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _snapshot(built)
    assert _convert(python_source, built) == 0
    assert _snapshot(built) == before
    assert "up to date" in capsys.readouterr().out


def test_a_second_run_removes_what_a_kill_left(
    python_source: Path, built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(built, tmp_path / "out")
    publish.start_staging(out)  # The last step of a build is to remove it.
    assert _convert(python_source, out) == 0
    assert "up to date" in capsys.readouterr().out
    assert not (out / publish.STAGING_NAME).exists()


def test_force_rebuilds_the_same_bytes(python_source: Path, built: Path, tmp_path: Path) -> None:
    out = shutil.copytree(built, tmp_path / "out")
    before = _snapshot(out)
    assert _convert(python_source, out, "--force") == 0
    assert not set(_snapshot(out).values()) & set(before.values())
    assert (out / "train.tfrecords").read_bytes() == (built / "train.tfrecords").read_bytes()


@pytest.mark.parametrize(
    "damage", ["removed", "truncated", "extra", "manifest", "marker", "link", "ring"]
)
def test_a_second_run_notices_what_is_amiss_and_rebuilds(
    damage: str, python_source: Path, built: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(built, tmp_path / "out")
    if damage == "removed":
        (out / "train.tfrecords").unlink()
    elif damage in ("link", "ring"):
        (out / "train.tfrecords").unlink()
        (out / "train.tfrecords").symlink_to("train.tfrecords" if damage == "ring" else "nowhere")
    elif damage == "truncated":
        os.truncate(out / "eval.tfrecords", 3126)
    elif damage == "extra":
        shutil.copy(out / "train.tfrecords", out / "train-00000-of-00002.tfrecords")
    elif damage == "manifest":
        (out / "manifest.json").write_text('{"format_version": 1}')
    else:
        (out / schema.INCOMPLETE_NAME).touch()
    assert _convert(python_source, out) == 0
    assert sorted(p.name for p in out.glob("*")) == sorted(p.name for p in built.glob("*"))
    assert verify.verify(out).damages == []


def test_records_that_are_linked_from_elsewhere_are_up_to_date(
    python_source: Path, built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in built.glob("[!.]*"):
        (tmp_path / path.name).symlink_to(path)
    assert _convert(python_source, tmp_path) == 0
    assert "up to date" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["train.tfrecords", "manifest.json", schema.INCOMPLETE_NAME])
def test_a_folder_in_place_of_a_file_leaves_the_other_files_as_they_were(
    name: str,
    python_source: Path,
    built: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = shutil.copytree(built, tmp_path / "out")
    (out / name).unlink(missing_ok=True)
    (out / name).mkdir()
    before = _snapshot(out)
    assert _convert(python_source, out, "--force") == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {out / name}: is a folder, where a file of this name")
    assert "Reading" not in printed.out  # Nothing was built in vain.
    assert _snapshot(out) == before
    staging = publish.start_staging(out)
    (staging / "eval.tfrecords").write_text("new")
    with pytest.raises(OutputError, match="move it away, or choose another --out"):
        publish.publish(out)
    assert _snapshot(out) == before


def test_other_shards_replace_the_old_ones_and_leave_foreign_files(
    python_source: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for shards, names in ((3, 3), (2, 2), (1, 1)):
        assert _convert(python_source, tmp_path, "--shards", str(shards)) == 0
        assert len(list(tmp_path.glob("train*.tfrecords"))) == names
        assert verify.verify(tmp_path).damages == []
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert _convert(python_source, tmp_path, "--shards", "3") == 0
    assert [f["records"] for f in _manifest(tmp_path)["splits"]["train"]["files"]] == [30, 30, 30]


def test_the_names_of_the_most_shards_are_those_of_records() -> None:
    most = schema.MAX_SHARDS
    name = schema.file_name(schema.TRAIN, most - 1, most)
    assert name == "train-99998-of-99999.tfrecords"
    assert schema.parse_file_name(name) == (schema.TRAIN, most - 1, most)


def test_records_that_another_program_made_are_kept_unless_forced(
    python_source: Path, built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(built / "eval.tfrecords", tmp_path / "train.tfrecords")
    assert _convert(python_source, tmp_path) == 1
    assert "holds train.tfrecords without a manifest" in capsys.readouterr().err
    assert (tmp_path / "train.tfrecords").stat().st_size == 62_520
    assert _convert(python_source, tmp_path, "--force") == 0


@pytest.mark.parametrize("name", [publish.LOCK_NAME, publish.STAGING_NAME, schema.INCOMPLETE_NAME])
def test_links_in_place_of_files_of_a_build_are_not_written_through(
    name: str, python_source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, mine = tmp_path / "out", tmp_path / "mine"
    out.mkdir()
    if name == publish.STAGING_NAME:
        mine.mkdir()
    else:
        mine.write_text("mine")
    (out / name).symlink_to(mine)
    code = _convert(python_source, out)
    if name == publish.LOCK_NAME:
        assert capsys.readouterr().err == (
            f"error: {out / name}: is a link, and must be a file; move it away\n"
        )
    else:
        assert verify.verify(out).damages == []
    assert code == (name == publish.LOCK_NAME)
    assert mine.is_dir() or mine.read_text() == "mine"


def test_a_bad_source_leaves_the_old_records_as_they_were(built: Path, tmp_path: Path) -> None:
    out = shutil.copytree(built, tmp_path / "out")
    source = made.python_folder(tmp_path / "bad")
    (source / "test_batch").write_bytes(b"garbage")
    assert _convert(source, out) == 2
    assert verify.verify(out).damages == []
    assert not (out / publish.STAGING_NAME).exists()


def test_two_runs_into_one_folder_are_one_too_many(
    python_source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with publish.exclusive(tmp_path):
        assert _convert(python_source, tmp_path) == 1
    assert "another run is building there" in capsys.readouterr().err


class _Killed(BaseException):
    pass


def test_a_kill_at_any_step_of_publishing_is_noticed_and_mended(
    python_source: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = False
    steps = 0
    while not finished:
        steps += 1
        out = shutil.copytree(built, tmp_path / str(steps))
        finished = _publish_until(steps, out, python_source, monkeypatch)
        refused = (out / schema.INCOMPLETE_NAME).exists()
        assert refused or verify.verify(out).damages == []
        assert _convert(python_source, out, "--shards", "2") == 0
        assert len(list(out.glob("train*"))) == 2
        assert verify.verify(out).damages == []
        assert not (out / schema.INCOMPLETE_NAME).exists()
    assert steps > 15


def _publish_until(step: int, out: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Rebuilds with two shards, but stops before one of the changes on disk, as if killed.

    Args:
      step: number of the change, from 1.
      out: the folder of records.
      source: the source to build from.
      monkeypatch: the fixture.

    Returns:
      Whether the build was complete because it makes fewer changes.
    """
    left = [step]

    def counted(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] <= 0:
                raise _Killed
            return function(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        # As after SIGKILL, nothing is cleaned up.
        patch.setattr(publish, "discard_staging", lambda folder: None)
        patch.setattr(publish, "sync", counted(publish.sync))
        patch.setattr(os, "replace", counted(os.replace))
        patch.setattr(Path, "unlink", counted(Path.unlink))
        try:
            assert _convert(source, out, "--shards", "2") == 0
        except _Killed:
            return False
    return True


def heed_interrupts() -> None:
    """Lets SIGINT end the process; the background jobs of a shell and their children ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_with_its_code_one_line_and_no_leftovers(
    number: int, code: int, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "data_prep", "--source", "synthetic", "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--synthetic-size", "40000"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("Reading")
    process.send_signal(number)
    _, error = process.communicate(timeout=120)
    assert process.returncode == code
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert not (out / publish.STAGING_NAME).exists()
