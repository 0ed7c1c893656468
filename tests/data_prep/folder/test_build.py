import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cifar10 import schema
from data_prep import cli
from data_prep.folder import publish, verify
from data_prep.tfrecord import read, write
from tests.data_prep import made

ROOT = Path(__file__).resolve().parents[3]


def _convert(source: Path, out: Path, *flags: str) -> int:
    return cli.main(["--source", str(source), "--out", str(out), *flags])


def _manifest(out: Path) -> Any:
    return json.loads((out / "manifest.json").read_text())


def _snapshot(out: Path) -> dict[str, tuple[int, int]]:
    return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in out.glob("[!.]*")}


def test_the_manifest_says_how_images_were_resized(tree, tmp_path, capsys):
    (tree / "train" / "cat" / "photo.png").write_bytes(made.png((50, 40)))
    (tree / "a.png").write_bytes(made.png())
    out = tmp_path / "out"
    for how, printed in (("pad", "(image-tree, --resize pad for"), ("crop", "the options changed")):
        assert _convert(tree, out, "--resize", how) == 0
        output = capsys.readouterr().out
        assert printed in output
        assert "\nLeft out, since they are in no folder of a split: 1 image files.\n" in output
        assert _manifest(out)["options"]["resize"] == how
    assert _convert(tree, out, "--resize", "crop") == 0
    assert "up to date" in capsys.readouterr().out


def test_a_tree_with_its_own_validation_images_keeps_them(tree, tmp_path, capsys):
    for file in (tree / "train").glob("*/0000.png"):
        (tree / "val" / file.parent.name).mkdir(parents=True)
        file.rename(tree / "val" / file.parent.name / file.name)
    assert _convert(tree, tmp_path / "out", "--validation-size", "5") == 2
    assert "--validation-size 5: the source has its own val" in capsys.readouterr().err
    assert _convert(tree, tmp_path / "out") == 0
    splits = _manifest(tmp_path / "out")["splits"]
    assert [splits[split]["records"] for split in schema.SPLITS] == [40, 10, 50]


def test_the_manifest_has_the_keys_that_training_reads(built):
    manifest = _manifest(built)
    keys = "format_version source class_names seed options splits channel_mean channel_deviation"
    assert list(manifest) == keys.split()
    assert (manifest["format_version"], manifest["seed"]) == (1, 0)
    fingerprint = manifest["source"].pop("fingerprint")
    assert len(fingerprint) == 64
    assert manifest["source"] == {"kind": "cifar-10-python", "name": "cifar-10-batches-py"}
    assert manifest["class_names"] == list(schema.CLASS_NAMES)
    assert [manifest["splits"][split]["records"] for split in schema.SPLITS] == [90, 10, 20]
    (file,) = manifest["splits"]["validation"]["files"]
    assert (file["name"], file["records"], file["bytes"]) == ("validation.tfrecords", 10, 31_260)
    unset = dict.fromkeys(("validation_size", "resize", "eval_fraction", "labels"))
    assert manifest["options"] == {**unset, "shards": 1}
    assert all(100 < value < 155 for value in manifest["channel_mean"])


def test_a_second_run_does_nothing_unless_an_option_differs(python_source, out, capsys):
    before = _snapshot(out)
    assert _convert(python_source, out) == 0
    assert _snapshot(out) == before
    assert "up to date" in capsys.readouterr().out
    assert _convert(python_source, out, "--seed", "1") == 0
    assert "Rebuilding: the options changed." in capsys.readouterr().out
    assert _manifest(out)["seed"] == 1


def test_the_records_of_each_split_are_in_mixed_order(built):
    for split in schema.SPLITS:
        labels = [label for _, label in read.scan(built / f"{split}.tfrecords", [])]
        assert labels != made.labels(len(labels))
        assert sorted(labels) == sorted(made.labels(len(labels)))


def test_records_that_do_not_read_back_replace_nothing(python_source, out, monkeypatch, capsys):
    encode, before = write.encode_records, _snapshot(out)

    def damaged(pixels: Any, labels: Any) -> Any:
        rows = encode(pixels, labels)
        rows[3, 500] ^= 1  # as by a disk or a memory that fails
        return rows

    monkeypatch.setattr(write, "encode_records", damaged)
    assert _convert(python_source, out, "--force") == 1
    error = capsys.readouterr().err
    assert "do not read back as written" in error
    assert "record 3 (byte 9378): the CRC of its content is wrong" in error
    assert _snapshot(out) == before


def _link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("train.tfrecords", Path.unlink),
        ("train.tfrecords", lambda path: _link(path, "nowhere")),
        ("train.tfrecords", lambda path: _link(path, "train.tfrecords")),
        ("eval.tfrecords", lambda path: os.truncate(path, 3126)),
        ("train-00000-of-00002.tfrecords", Path.touch),
        ("manifest.json", lambda path: path.write_text('{"format_version": 1}')),
        (schema.INCOMPLETE_NAME, Path.touch),
    ],
)
def test_a_second_run_notices_what_is_amiss_and_rebuilds(name, damage, python_source, built, out):
    damage(out / name)
    assert _convert(python_source, out) == 0
    assert sorted(p.name for p in out.glob("*")) == sorted(p.name for p in built.glob("*"))
    assert verify.verify(out).damages == []


def test_other_shards_replace_the_old_ones_and_leave_foreign_files(python_source, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for shards in (3, 2, 1, 3):
        assert _convert(python_source, tmp_path, "--shards", str(shards)) == 0
        assert len(list(tmp_path.glob("train*.tfrecords"))) == shards
        assert verify.verify(tmp_path).damages == []
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert [f["records"] for f in _manifest(tmp_path)["splits"]["train"]["files"]] == [30, 30, 30]


def test_records_that_another_program_made_are_kept_unless_forced(
    python_source, built, tmp_path, capsys
):
    shutil.copy(built / "eval.tfrecords", tmp_path / "train.tfrecords")
    assert _convert(python_source, tmp_path) == 1
    assert "holds train.tfrecords without a manifest" in capsys.readouterr().err
    assert (tmp_path / "train.tfrecords").stat().st_size == 62_520
    assert _convert(python_source, tmp_path, "--force") == 0


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("error", [_Killed, OSError])
def test_a_kill_or_failure_at_any_step_of_publishing_is_noticed_and_mended(
    error, python_source, built, tmp_path, monkeypatch
):
    """Stops before each change on the disk in turn."""
    for step in range(1, 100):
        out = shutil.copytree(built, tmp_path / str(step))
        left = [step]

        def counted(function: Any, left: list[int] = left) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                left[0] -= 1
                if left[0] == 0:
                    raise error
                return function(*args, **kwargs)

            return call

        with monkeypatch.context() as patch, contextlib.suppress(_Killed):
            if error is _Killed:  # Then nothing is cleaned up.
                patch.setattr(publish, "discard_staging", lambda folder: None)
            patch.setattr(publish, "sync", counted(publish.sync))
            patch.setattr(os, "replace", counted(os.replace))
            patch.setattr(Path, "touch", counted(Path.touch))
            patch.setattr(Path, "unlink", counted(Path.unlink))
            assert _convert(python_source, out, "--shards", "2") == (left[0] <= 0)
        assert (out / schema.INCOMPLETE_NAME).exists() or verify.verify(out).damages == []
        if left[0] > 0:
            break
        assert _convert(python_source, out, "--shards", "2") == 0
        assert len(list(out.glob("train*"))) == 2
        assert verify.verify(out).damages == []
        assert not (out / schema.INCOMPLETE_NAME).exists()
    assert 15 < step < 99


def test_records_and_manifest_are_on_disk_before_they_are_named(
    python_source, tmp_path, monkeypatch
):
    """A machine that loses power may keep a rename, but not what was written before it."""
    events: list[tuple[str, str]] = []
    sync, replace = publish.sync, os.replace

    def note_sync(path: Path) -> None:
        events.append(("sync", path.name))
        sync(path)

    def note_replace(path: Path, target: Path) -> None:
        assert ("sync", path.name) in events
        events.append(("name", target.name))
        replace(path, target)

    monkeypatch.setattr(publish, "sync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    assert _convert(python_source, tmp_path / "out") == 0
    names = ["eval.tfrecords", "train.tfrecords", "validation.tfrecords"]
    folder = ("sync", "out")
    files = {("sync", name) for name in (*names, "manifest.json")}
    assert set(events[:4]) == files
    named = [("name", name) for name in names]
    assert events[4:] == [folder, *named, folder, ("name", "manifest.json"), folder, folder]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_with_its_code_one_line_and_no_leftovers(number, code, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "data_prep", "--source", "synthetic", "--out", str(out)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The background jobs of a shell and their children ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("Reading")
    process.send_signal(number)
    _, error = process.communicate(timeout=120)
    assert process.returncode == code
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert not (out / publish.STAGING_NAME).exists()


@pytest.mark.parametrize("name", [publish.LOCK_NAME, publish.STAGING_NAME, schema.INCOMPLETE_NAME])
def test_links_in_place_of_files_of_a_build_are_not_written_through(
    name, python_source, built, tmp_path
):
    out, mine = tmp_path / "out", shutil.copytree(built, tmp_path / "mine")
    out.mkdir()
    is_folder = name == publish.STAGING_NAME
    (out / name).symlink_to(mine if is_folder else mine / "manifest.json")
    assert _convert(python_source, out, "--seed", "1") == is_folder
    assert verify.verify(mine).damages == []
