import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_prep import cli
from data_prep.folder import publish
from data_prep.tfrecord import read, write
from tests.data_prep import made

RECORD = 3126


@pytest.fixture
def out(built: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built, tmp_path / "out")


def _flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def _verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["verify", str(folder)]) == 1
    return capsys.readouterr().out


def test_verify_counts_sound_records(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(built)]) == 0
    output = capsys.readouterr().out
    assert "120 records are undamaged" in output
    assert "airplane               9           1           2" in output


def test_verify_names_the_record_with_a_wrong_crc(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _flip(out / "train.tfrecords", 17 * RECORD + 500)
    _flip(out / "train.tfrecords", 60 * RECORD + 500)
    output = _verify(out, capsys)
    assert "train.tfrecords: record 17 (byte 53142): the CRC of its content is wrong" in output
    assert "train.tfrecords: record 60 (byte 187560): the CRC of its content is wrong" in output


@pytest.mark.parametrize("change", ["flip", "cut", "remove"])
def test_verify_does_not_blame_the_manifest_for_damaged_records(
    change: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = out / "train.tfrecords"
    if change == "flip":
        _flip(path, 17 * RECORD + 500)
    elif change == "cut":
        os.truncate(path, 80 * RECORD)
    else:
        path.unlink()
    output = _verify(out, capsys)
    assert f"{out}: 1 faults." in output
    assert "channel_mean" not in output


def test_verify_names_the_record_with_a_wrong_length(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _flip(out / "eval.tfrecords", 5 * RECORD + 1)
    assert "eval.tfrecords: record 5 (byte 15630): the CRC of its length" in _verify(out, capsys)


@pytest.mark.parametrize("length", [RECORD * 3 + 5, RECORD * 3 + 13, RECORD * 4 - 1])
def test_verify_names_the_record_that_is_cut(
    length: int, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.truncate(out / "eval.tfrecords", length)
    assert "eval.tfrecords: record 3 (byte 9378): truncated" in _verify(out, capsys)


def test_verify_names_the_record_with_a_label_out_of_range(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    payload = write.encode_example(b"\0" * 3072, 10)
    header = write.HEADER.pack(len(payload), 0)[:8]
    framed = header + write.FOOTER.pack(write.masked_crc(header))
    framed += payload + write.FOOTER.pack(write.masked_crc(payload))
    with (out / "eval.tfrecords").open("ab") as file:
        file.write(framed)
    output = _verify(out, capsys)
    assert "eval.tfrecords: record 20 (byte 62520): 'label' must be 0 to 9, is 10" in output


def test_records_of_another_schema_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    payload = write.encode_example(made.png(), 3)  # as TensorFlow Datasets has them
    length = write.HEADER.pack(len(payload), 0)[:8]
    record = length + write.FOOTER.pack(write.masked_crc(length)) + payload
    record += write.FOOTER.pack(write.masked_crc(payload))
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.tfrecord").write_bytes(record * 30)
    assert cli.main(["verify", str(tmp_path)]) == 1
    assert capsys.readouterr() == (
        "",
        f"error: {tmp_path}/test.tfrecord: its records are whole, but of another schema: 'image' "
        f"must be 3072 bytes, is {len(made.png())}; docs/formats.md says what a record must hold\n",
    )


def test_verify_notices_whole_records_that_are_missing(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.truncate(out / "train.tfrecords", 80 * RECORD)
    output = _verify(out, capsys)
    assert "train.tfrecords: holds 80 records, the manifest says 90" in output


def test_verify_notices_other_records_of_the_same_number(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (out / "eval.tfrecords").read_bytes()
    (out / "eval.tfrecords").write_bytes(content[RECORD:] + content[:RECORD])
    assert "eval.tfrecords: SHA-256 is " in _verify(out, capsys)


def test_verify_names_missing_and_extra_files(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (out / "eval.tfrecords").rename(out / "eval-00000-of-00002.tfrecords")
    output = _verify(out, capsys)
    assert "eval.tfrecords: is in the manifest but not in the folder" in output
    assert (
        "eval-00000-of-00002.tfrecords: is not in the manifest; training leaves it out\n"
    ) in output
    (out / "manifest.json").unlink()
    output = _verify(out, capsys)
    assert f"DAMAGE {out}/eval-00001-of-00002.tfrecords is missing; run the data_prep" in output


def _make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _make_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere/file")


@pytest.mark.parametrize("change", [_make_pipe, _make_folder])
@pytest.mark.parametrize("name", ["eval.tfrecords", "manifest.json"])
def test_what_is_no_regular_file_is_damage_and_not_waited_for(
    name: str, change: Callable[[Path], None], out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(out / name)
    output = _verify(out, capsys)
    assert f"DAMAGE {out / name}: must be a regular file, or a link to one" in output
    assert f"{out}: 1 faults." in output


def test_a_link_to_a_file_of_records_is_read_and_one_to_nothing_is_damage(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = (out / "eval.tfrecords").rename(tmp_path / "elsewhere")
    (out / "eval.tfrecords").symlink_to(path)
    assert cli.main(["verify", str(out)]) == 0
    _make_dangling_link(out / "eval.tfrecords")
    assert "eval.tfrecords: must be a regular file, or a link to one" in _verify(out, capsys)


def _edit(out: Path, key: str, value: Any) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    manifest[key] = value
    (out / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("format_version", 2, "format_version must be 1, is 2"),
        ("channel_mean", [125.3, 123.0, 113.9], "channel_mean and channel_deviation are not"),
        ("splits", {}, "not a manifest of data_prep"),
        ("class_names", ["cat"], "1 class names"),
    ],
)
def test_verify_doubts_the_manifest(
    key: str, value: Any, reason: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _edit(out, key, value)
    assert reason in _verify(out, capsys)


def test_class_names_cannot_write_on_the_terminal(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _edit(out, "class_names", ["\x1b[31mred\x07", *"bcdefghij"])
    assert cli.main(["verify", str(out)]) == 0
    assert "\n [31mred " in capsys.readouterr().out


def test_a_manifest_that_is_no_json_is_damage(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (out / "manifest.json").write_text("[1, 2")
    assert "manifest.json: cannot be read" in _verify(out, capsys)
    (out / "manifest.json").write_text("[1, 2]")
    assert "format_version must be 1, is None" in _verify(out, capsys)


def test_verify_refuses_a_folder_that_was_cut_off(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (out / "INCOMPLETE").touch()
    assert "INCOMPLETE: a build did not finish" in _verify(out, capsys)


def test_verify_does_not_take_a_conversion_at_work_for_one_that_was_cut_off(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (out / "INCOMPLETE").touch()
    with publish.exclusive(out):
        assert cli.main(["verify", str(out)]) == 1
        assert capsys.readouterr() == (
            "",
            f"error: {out}: a conversion is replacing these records; wait for it, then verify "
            "again\n",
        )
    assert "INCOMPLETE: a build did not finish" in _verify(out, capsys)
    (out / "INCOMPLETE").unlink()
    with publish.exclusive(out):  # While it reads its source, the old records are whole.
        assert cli.main(["verify", str(out)]) == 0


def _when_files_are_listed(do: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Does something once, after `verify` has listed the files of the folder."""
    list_files = publish.record_files

    def list_then_do(folder: Path, ours: bool) -> list[str]:
        names = list_files(folder, ours)
        monkeypatch.setattr(publish, "record_files", list_files)
        do(folder)
        return names

    monkeypatch.setattr(publish, "record_files", list_then_do)


def test_verify_notices_a_conversion_that_begins_to_replace_the_records_meanwhile(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def begin_to_replace(folder: Path) -> None:
        (folder / "INCOMPLETE").touch()
        (folder / "eval.tfrecords").unlink()

    _when_files_are_listed(begin_to_replace, monkeypatch)
    with publish.exclusive(out):
        assert cli.main(["verify", str(out)]) == 1
    assert "a conversion is replacing these records" in capsys.readouterr().err


def test_verify_notices_a_conversion_that_replaces_the_records_meanwhile(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def convert(folder: Path) -> None:
        words = ("--source", "synthetic", "--synthetic-size", "30", "--out", str(folder))
        assert cli.main([*words, "--seed", "5", "--validation-size", "0", "--force"]) == 0

    _when_files_are_listed(convert, monkeypatch)
    assert cli.main(["verify", str(out)]) == 1
    assert capsys.readouterr().err.endswith(
        f"error: {out}: a conversion has replaced these records meanwhile; verify again\n"
    )
    assert cli.main(["verify", str(out)]) == 0


@pytest.mark.slow
def test_verify_checks_tensorflows_files_without_a_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import tensorflow as tf

    for split in ("train", "validation", "eval"):
        with tf.io.TFRecordWriter(str(tmp_path / f"{split}.tfrecords")) as writer:
            for label in range(10):
                example = tf.train.Example()
                example.features.feature["label"].int64_list.value.append(label)
                example.features.feature["image"].bytes_list.value.append(bytes([label]) * 3072)
                writer.write(example.SerializeToString())
    assert cli.main(["verify", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "No manifest" in output
    assert "30 records are undamaged" in output
    assert cli.main(["show", str(tmp_path), "--out", str(tmp_path / "grid.png")]) == 0
    _flip(tmp_path / "eval.tfrecords", 100)
    assert "eval.tfrecords: record 0 (byte 0)" in _verify(tmp_path, capsys)


@pytest.mark.parametrize("folder", ["/nowhere", ""])
def test_verify_needs_a_folder_with_records(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", folder or str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_verify_says_that_it_gives_up_on_a_file(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = out / "train.tfrecords"
    for record in range(21):
        _flip(path, record * RECORD + 500)
    output = _verify(out, capsys)
    given_up = (
        f"DAMAGE {path}: gave up after 20 damaged records; the rest was neither read nor counted\n"
    )
    assert f"{path}: record 19 (" in output
    assert f"{path}: record 20 (" not in output
    assert given_up in output
    os.truncate(path, 20 * RECORD)
    assert given_up not in _verify(out, capsys)


@pytest.mark.parametrize("change", ["cut", "wrong CRC"])
def test_what_cannot_be_unpacked_after_the_last_damage_that_counts_is_no_error(
    change: str, out: Path, tmp_path: Path
) -> None:
    path = out / "train.tfrecords"
    for record in range(20):
        _flip(path, record * RECORD + 500)
    packed = bytearray(gzip.compress(path.read_bytes()[: 20 * RECORD]))
    packed[-8] ^= 1
    path = tmp_path / "train.tfrecords.gz"
    path.write_bytes(packed[:-8] if change == "cut" else packed)
    damages = read.scan(path).damages
    assert len(damages) == 21
    assert damages[-1].startswith(f"{path}: gave up after 20 damaged records")
