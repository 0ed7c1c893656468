import json
import os
from pathlib import Path

import pytest

from data_prep import cli
from data_prep.folder import publish
from data_prep.tfrecord import write
from tests.data_prep import made
from tests.failing_disk import flip_bit

RECORD = 3126


def _framed(payload: bytes) -> bytes:
    length = write.HEADER.pack(len(payload), 0)[:8]
    crcs = (write.FOOTER.pack(write.masked_crc(part)) for part in (length, payload))
    return length + next(crcs) + payload + next(crcs)


def _verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["verify", str(folder)]) == 1
    return capsys.readouterr().out


def test_verify_counts_sound_records(built, capsys):
    assert cli.main(["verify", str(built)]) == 0
    output = capsys.readouterr().out
    assert "120 records are undamaged" in output
    assert "airplane               9           1           2" in output


def _rotate(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[RECORD:] + content[:RECORD])


# The train split has 90 records; the statistics of a damaged one are no fault of the manifest.
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: flip_bit(path, 17 * RECORD + 500), "record 17 (byte 53142): the CRC of its"),
        (lambda path: flip_bit(path, 5 * RECORD + 1), "record 5 (byte 15630): the CRC of its len"),
        (lambda path: os.truncate(path, RECORD * 3 + 5), "record 3 (byte 9378): truncated: 5 of 1"),
        (lambda path: os.truncate(path, RECORD * 3 + 13), "record 3 (byte 9378): truncated: 1 of"),
        (lambda path: os.truncate(path, RECORD * 4 - 1), "record 3 (byte 9378): truncated: 3113 o"),
        (lambda path: os.truncate(path, RECORD * 80), "its 80 records are not the 90 of the manif"),
        (_rotate, "its 90 records are not the 90 of the manifest, by their SHA-256"),
        (Path.unlink, "is in the manifest but not in the folder"),
    ],
)
def test_verify_names_the_damage_and_nothing_else(change, reason, out, capsys):
    change(out / "train.tfrecords")
    output = _verify(out, capsys)
    assert f"DAMAGE {out}/train.tfrecords: {reason}" in output
    assert f"{out}: 1 faults." in output


def test_records_of_another_schema_say_what_they_must_hold(tmp_path, capsys):
    payload = write.encode_example(made.png(), 3)  # as TensorFlow Datasets has them
    (tmp_path / "test.tfrecord").write_bytes(_framed(payload) * 30)
    output = _verify(tmp_path, capsys)
    assert "No manifest" in output
    assert f"{tmp_path}/test.tfrecord: record 0 (byte 0): 'image' must be 3072 bytes, is" in output
    assert output.count("'image' must be 3072") == 20
    assert f"DAMAGE {tmp_path}/test.tfrecord: gave up after 20 damaged records\n" in output


def test_verify_names_missing_and_extra_files(out, capsys):
    (out / "eval.tfrecords").rename(out / "eval-00000-of-00002.tfrecords")
    output = _verify(out, capsys)
    assert "eval.tfrecords: is in the manifest but not in the folder" in output
    assert "0-of-00002.tfrecords: is not in the manifest; training leaves it out\n" in output
    (out / "manifest.json").unlink()
    output = _verify(out, capsys)
    assert f"DAMAGE {out}/eval-00001-of-00002.tfrecords is missing; run the data_prep" in output


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("format_version", 2, "format_version must be 1, is 2); rebuild with --force"),
        ("channel_mean", [125.3, 123.0, 113.9], "channel_mean and channel_deviation are not"),
        ("splits", {}, "not a manifest of data_prep"),
        ("class_names", ["cat"], "1 class names"),
    ],
)
def test_verify_doubts_the_manifest(key, value, reason, out, capsys):
    manifest = json.loads((out / "manifest.json").read_text())
    manifest[key] = value
    (out / "manifest.json").write_text(json.dumps(manifest))
    assert reason in _verify(out, capsys)


def test_verify_and_a_conversion_keep_each_other_away(out, python_source, capsys):
    lock = out / publish.LOCK_NAME
    with publish.locked(lock):
        assert cli.main(["verify", str(out)]) == 1
    with publish.locked(lock, "rb"):
        assert cli.main(["--source", str(python_source), "--out", str(out), "--force"]) == 1
        assert cli.main(["verify", str(out)]) == 0
    line = f"error: {out}: another run is at work there; wait for it or choose another folder\n"
    assert capsys.readouterr().err == line * 2
