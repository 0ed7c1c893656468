"""A data folder is understood, or refused in one line that names file, rule and way out."""

import gzip
import json
import os
import pathlib
import shutil
from typing import Any, Callable

import pytest
import tensorflow.compat.v1 as tf

from cifar10 import tf_errors
from cifar10.config.train_config import TrainConfig
from cifar10.errors import DataError
from cifar10.input.pipeline import evaluation_batches, load_split, training_batches
from cifar10.input.records import CIFAR10_MEAN, CIFAR10_STD, RecordSet, open_records
from data_prep import cli
from tests.cifar10 import record_files
from tests.failing_disk import flip_bit
from tests.unprivileged import open_folder, unprivileged

IMAGE = bytes(3072)


@pytest.fixture
def copy(prepared_data: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """data_prep's folder, to damage."""
    return pathlib.Path(shutil.copytree(prepared_data, tmp_path / "data"))


def refusal(folder: object) -> str:
    with pytest.raises(DataError) as refused:
        open_records(str(folder))
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_data_preps_shards_are_found_and_counted(prepared_data):
    records = open_records(str(prepared_data))
    assert records.counts == {"train": 90, "validation": 10, "eval": 20}
    assert [pathlib.Path(path).name for path in records.files("train")] == [
        "train-00000-of-00002.tfrecords",
        "train-00001-of-00002.tfrecords",
    ]
    assert records.has_validation
    manifest = json.loads((prepared_data / "manifest.json").read_text())
    assert records.manifest == manifest
    channels = [manifest["channel_mean"], manifest["channel_deviation"]]
    assert [*map(list, records.channels)] == channels


def test_the_tutorials_own_files_are_read_without_a_manifest(tutorial_data):
    records = open_records(str(tutorial_data))
    assert records.counts == {"train": 100, "validation": 7, "eval": 23}
    path = tutorial_data / "eval.tfrecords"
    entry = {"name": path.name, "records": 23, "bytes": path.stat().st_size}
    assert records.files("eval") == {str(path): entry}
    assert records.channels == (CIFAR10_MEAN, CIFAR10_STD)
    assert records.manifest["source"]["kind"] == "unknown"
    assert records.manifest["class_names"][3] == "cat"


def test_records_are_known_by_their_files(prepared_data, tutorial_data):
    splits = json.loads((prepared_data / "manifest.json").read_text())["splits"]
    found = open_records(str(prepared_data)).fingerprint()
    assert found == [file["sha256"] for file in splits["train"]["files"]]
    size = (tutorial_data / "train.tfrecords").stat().st_size
    assert open_records(str(tutorial_data)).fingerprint() == [f"train.tfrecords, {size} bytes"]


def test_a_data_folder_may_be_anything_that_gfile_opens(tutorial_data):
    folder = f"ram://{tutorial_data}"
    tf.io.gfile.makedirs(folder)
    for path in tutorial_data.iterdir():
        tf.io.gfile.copy(str(path), f"{folder}/{path.name}", overwrite=True)
    records = open_records(folder)
    assert records.counts == {"train": 100, "validation": 7, "eval": 23}
    ((images, labels),) = evaluation_batches(records, "validation", 100)
    assert record_files.numbers(images.numpy()) == list(range(300, 307))
    assert labels.numpy().tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_a_split_without_records_is_refused_when_it_is_needed(tmp_path):
    record_files.write_numbered(tmp_path, "train", 5)
    record_files.write_file(tmp_path / "validation.tfrecords", [])
    records = open_records(str(tmp_path))
    records.require("train")
    assert not records.has_validation
    for split in ("validation", "eval"):
        with pytest.raises(DataError, match=f"has no {split} records; it holds train.tfrecords, "):
            records.require(split)


@pytest.mark.parametrize(
    ("train", "evaluation"),
    [
        (["train-00000-of-00002", "train-00001-of-00002"], ["eval.tfrecord-00000-of-00001"]),
        (["train.tfrecord.gz"], ["test-00000-of-00001.tfrecord.gz"]),
    ],
)
def test_records_of_other_programs_are_read_if_their_names_tell_the_split(
    tmp_path, train, evaluation
):
    for number, name in enumerate([*train, *evaluation]):
        rows = [record_files.example(record_files.numbered_image(number), 3)] * 2
        record_files.write_file(tmp_path / name, rows)
        if name.endswith(".gz"):
            (tmp_path / name).write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    records = open_records(str(tmp_path))
    assert records.counts == {"train": 2 * len(train), "eval": 2}
    ((images, labels),) = evaluation_batches(records, "eval", 100)
    assert record_files.numbers(images.numpy()) == [len(train)] * 2
    assert labels.numpy().tolist() == [3, 3]
    assert cli.main(["verify", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["train.tfrecord", "train.tfrecords"], "train.tfrecords and train.tfrecord are of two se"),
        (["test.tfrecords", "eval-00000-of-00001"], "test.tfrecords and eval-00000-of-00001 are"),
        (["train-00001-of-00002"], "train-00000-of-00002 is missing; run the data_prep command "),
        (["train.tfrecords.gz"], "train.tfrecords.gz cannot be read: inflate() failed"),
    ],
)
def test_what_is_no_one_set_of_a_splits_files_is_named(tmp_path, names, reason):
    for name in names:
        record_files.write_file(tmp_path / name, [record_files.example(IMAGE, 1)])
    assert refusal(tmp_path).startswith(f"{tmp_path}/{reason}")


def test_a_folder_without_records_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("none here")
    (tmp_path / "training.tfrecords").write_bytes(b"")
    assert refusal(tmp_path).startswith(
        f"no records in {tmp_path}; it holds notes.txt, training.tfrecords; training reads "
        "SPLIT.tfrecord or SPLIT-00000-of-00002, SPLIT being train, validation, valid, val, eval, "
        f"test; `python -m data_prep --source SOURCE --out {tmp_path}` makes them, where SOURCE is "
        "cifar-10-python.tar.gz, cifar-10-batches-py, an image folder, or synthetic"
    )
    assert refusal(tmp_path / "no").startswith(f"no records in {tmp_path}/no; `python -m data_prep")


def test_a_file_whose_name_is_no_utf8_does_no_harm(copy):
    (copy / os.fsdecode(b"a\xff")).touch()
    assert open_records(f"file://{copy}").counts == {"train": 90, "validation": 10, "eval": 20}


@pytest.mark.parametrize(
    ("name", "damage", "line"),
    [
        (
            "INCOMPLETE",
            lambda old: b"",
            "the records in {folder} are half-written; run the same da",
        ),
        (
            "eval.tfrecords",
            lambda old: old[:-1],
            "{path} has 62,519 bytes, the manifest says 62,520; run data_prep with --force",
        ),
        ("manifest.json", lambda old: old[:-20], "{path} is no manifest of data_prep ("),
        ("manifest.json", lambda old: b"[]", "{path} is no manifest of data_prep ("),
        (
            "manifest.json",
            lambda old: b'{"format_version": 2, "shards": {}}',
            "{path} has format version 2, this code reads 1; run data_prep with --force",
        ),
    ],
)
def test_a_folder_that_is_not_as_data_prep_left_it_is_refused(copy, name, damage, line):
    path = copy / name
    path.write_bytes(damage(path.read_bytes() if path.exists() else b""))
    assert refusal(copy).startswith(line.format(folder=copy, path=path))


@pytest.mark.parametrize("keep", [12, 3125])
def test_a_file_that_ends_inside_a_record_is_named_without_a_manifest_too(tmp_path, keep):
    path = tmp_path / "train.tfrecords"
    rows = [record_files.example(IMAGE, label) for label in range(3)]
    record_files.write_file(path, rows)
    size = path.stat().st_size // 3
    path.write_bytes(path.read_bytes()[: 2 * size + keep])
    assert refusal(tmp_path).startswith(f"{path} cannot be read: truncated record at {2 * size}")


def make_folder(path):
    path.unlink()
    path.mkdir()


def make_dangling(path):
    path.unlink()
    path.symlink_to(path.parent / "gone")


@pytest.mark.parametrize("with_manifest", [True, False])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [(make_folder, "Is a directory"), (make_dangling, "No such file or directory")],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(copy, damage, reason, with_manifest):
    if not with_manifest:
        (copy / "manifest.json").unlink()
    path = copy / "validation.tfrecords"
    damage(path)
    assert refusal(copy) == (
        f"{path} cannot be read: {reason}; make it a readable file, or run the data_prep command "
        "again"
    )


def test_a_folder_without_permission_is_not_taken_for_an_empty_one(prepared_data):
    with open_folder() as locked:
        folder = locked / "data"
        shutil.copytree(prepared_data, folder, dirs_exist_ok=True)
        locked.chmod(0o700)
        with unprivileged():
            assert refusal(folder) == (
                f"{folder} cannot be read: Permission denied; make it a readable folder, or run "
                "the data_prep command again"
            )


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (record_files.example(IMAGE, 10), "bad record: a label must be in [0, 10)"),
        (record_files.example(IMAGE, -1), "bad record: a label must be in [0, 10)"),
        (record_files.example(IMAGE * 2, 1), "bad record: an image must have 3,072 bytes"),
        (b"no protobuf", "a record is not an image with a label"),
    ],
    ids=["label 10", "label -1", "image", "no protobuf"],
)
def test_a_bad_record_is_one_clear_line(tmp_path, record, what):
    good = record_files.example(IMAGE, 1)
    record_files.write_file(tmp_path / "eval.tfrecords", [good, record, good])
    assert error_while_reading(tmp_path) == faulty(what, tmp_path)


def faulty(what: str, folder: pathlib.Path) -> str:
    verify = f"`python -m data_prep verify {folder}`"
    return f"{what} in {folder}; check all by {verify}, then run the same command to continue"


def test_a_flipped_bit_is_one_clear_line(copy):
    path = copy / "eval.tfrecords"
    flip_bit(path, 1000)
    assert error_while_reading(copy) == faulty("a file is damaged", copy)
    (copy / "manifest.json").unlink()
    assert refusal(copy) == (
        f"{path} cannot be read: corrupted record at 12; copy it again, or run the data_prep "
        "command again"
    )


def error_while_reading(folder: pathlib.Path) -> str:
    return error_of(
        open_records(str(folder)), lambda records: evaluation_batches(records, "eval", 2)
    )


def error_of(records: RecordSet, reading: Callable[[RecordSet], Any]) -> str:
    config = TrainConfig(data_dir=records.data_dir)
    with tf.Graph().as_default(), tf.Session() as session:
        data = tf.data.make_initializable_iterator(reading(records))
        batch = data.get_next()
        session.run(data.initializer)
        with pytest.raises(DataError) as refused, tf_errors.clear_errors(config):
            run_to_end(session, batch)
    return str(refused.value)


def run_to_end(session: tf.Session, batch: Any) -> None:
    for _ in range(600):  # Training has no end.
        session.run(batch)


READINGS = {
    "load": lambda records: load_split(records, "train"),
    "train": lambda records: training_batches(records, TrainConfig(), 5),
    "evaluate": lambda records: evaluation_batches(records, "train", 30),
}


def replaced(folder: pathlib.Path) -> str:
    found = faulty("records were replaced while they were read", folder)
    return found.replace("; check", "; when data_prep has ended, check")


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS.keys())
def test_records_that_a_conversion_replaces_meanwhile_are_refused(copy, reading):
    records = open_records(str(copy))
    (copy / "manifest.json").unlink()
    assert error_of(records, reading) == replaced(copy)
    (copy / "train-00001-of-00002.tfrecords").unlink()
    assert error_of(records, reading) == replaced(copy)


# As many records as are parsed at once, and then some; a batch of these ends where the file did.
@pytest.mark.parametrize(
    ("number", "reading"), [(2048, "load"), (2047, "load"), (1, "load"), (1, "evaluate")]
)
def test_another_number_of_records_than_before_is_refused(tmp_path, number, reading):
    record_files.write_numbered(tmp_path, "train", 1024)
    records = open_records(str(tmp_path))
    record_files.write_numbered(tmp_path, "train", number)
    assert error_of(records, READINGS[reading]) == replaced(tmp_path)
