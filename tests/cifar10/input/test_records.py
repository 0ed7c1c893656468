"""A data folder is understood, or refused in one line that names file, rule and way out."""

import functools
import gzip
import json
import operator
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any, Callable

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10 import schema
from cifar10.config.train_config import TrainConfig
from cifar10.errors import DataError
from cifar10.input.pipeline import (
    TrainInput,
    check_evaluation,
    evaluation_batches,
    load_split,
    training_batches,
)
from cifar10.input.records import (
    CIFAR10_DEVIATION,
    CIFAR10_MEAN,
    RecordSet,
    count_records,
    open_records,
)
from cifar10.run import tf_errors
from data_prep import cli
from tests.cifar10 import record_files
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
    assert [pathlib.Path(path).name for path in records.files["train"]] == [
        "train-00000-of-00002.tfrecords",
        "train-00001-of-00002.tfrecords",
    ]
    assert records.has_validation
    manifest = json.loads((prepared_data / "manifest.json").read_text())
    assert records.manifest == manifest
    assert records.channel_mean == tuple(manifest["channel_mean"])
    assert records.channel_deviation == tuple(manifest["channel_deviation"])


def test_the_manifest_says_how_images_were_resized(prepared_data, copy):
    assert open_records(str(prepared_data)).resize is None
    path = copy / "manifest.json"
    for how, known in (("crop", "crop"), ("blur", None), (["crop"], None)):
        manifest = json.loads(path.read_text())
        manifest["options"]["resize"] = how
        path.write_text(json.dumps(manifest))
        assert open_records(str(copy)).resize == known
    del manifest["options"]  # of another version
    path.write_text(json.dumps(manifest))
    assert open_records(str(copy)).resize is None


def test_the_tutorials_own_files_are_read_without_a_manifest(tutorial_data):
    records = open_records(str(tutorial_data))
    assert records.counts == {"train": 100, "validation": 7, "eval": 23}
    assert records.files["eval"] == (str(tutorial_data / "eval.tfrecords"),)
    assert records.channel_mean == CIFAR10_MEAN
    assert records.channel_deviation == CIFAR10_DEVIATION
    assert records.manifest["source"]["kind"] == "unknown"
    assert records.manifest["class_names"][3] == "cat"


def test_records_are_known_by_their_files(prepared_data, tutorial_data):
    splits = json.loads((prepared_data / "manifest.json").read_text())["splits"]
    assert open_records(str(prepared_data)).fingerprints() == {
        split: [file["sha256"] for file in splits[split]["files"]]
        for split in ("train", "validation")
    }
    size = (tutorial_data / "train.tfrecords").stat().st_size
    assert open_records(str(tutorial_data)).fingerprints()["train"] == [
        f"train.tfrecords, {size} bytes"
    ]


def test_the_records_there_are_count_not_the_published_number(tmp_path):
    # The tutorial wrote 40,000 training records and believed in 45,000.
    record_files.write_numbered(tmp_path, "train", 40)
    assert open_records(str(tmp_path)).counts == {"train": 40}


@pytest.mark.parametrize("scheme", ["file://", "ram://"])
def test_a_data_folder_may_be_anything_that_gfile_opens(tutorial_data, scheme):
    folder = f"{scheme}{tutorial_data}"
    if scheme == "ram://":
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
        (["train.tfrecord"], ["test.tfrecords"]),
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
        (["train.tfrecords.gz"], "train.tfrecords.gz cannot be read: Not a gzipped file"),
    ],
)
def test_what_is_no_one_set_of_a_splits_files_is_named(tmp_path, names, reason):
    for name in names:
        record_files.write_file(tmp_path / name, [record_files.example(IMAGE, 1)])
    assert refusal(tmp_path).startswith(f"{tmp_path}/{reason}")


@pytest.mark.parametrize(
    ("files", "place", "source", "out"),
    [
        (["cifar-10-batches-py/data_batch_1"], "cifar-10-batches-py", "", ""),
        (["cifar-10-batches-py/data_batch_1"], "", "/cifar-10-batches-py", ""),
        (["b/data_batch_1.bin"], "b", "", ""),
        (["cifar-10-binary.tar.gz"], "", "/cifar-10-binary.tar.gz", ""),
        (["k/trainLabels.csv", "k/train/1.png"], "k", "", ""),
        (["cifar-10-python.tar.gz"], "cifar-10-python.tar.gz", "", None),
    ],
)
def test_other_forms_of_cifar10_are_refused_with_the_command_that_makes_records_of_them(
    tmp_path, files, place, source, out
):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    given = f"{tmp_path}/{place}".rstrip("/")
    made = tmp_path if out is None else given
    assert refusal(given) == (
        f"no records in {given}; `python -m data_prep --source {given}{source} --out {made}` makes "
        "them" + (f"; then give --data-dir {made}" if out is None else "")
    )


def test_the_command_that_makes_records_has_folders_as_a_shell_reads_them(tmp_path):
    folder = tmp_path / "my data"
    folder.mkdir()
    archive = folder / "cifar-10-python.tar.gz"
    archive.touch()
    assert refusal(archive) == (
        f"no records in {archive}; `python -m data_prep --source '{archive}' --out '{folder}'` "
        f"makes them; then give --data-dir '{folder}'"
    )


@pytest.mark.parametrize("name", ["train-00000-of-00000", "train-00002-of-00002.tfrecord"])
def test_a_number_that_no_shard_has_is_no_name_of_records(name):
    assert schema.parse_record_name(name) is None


def test_a_missing_folder_is_refused_with_the_command_that_makes_it(tmp_path):
    folder = tmp_path / "nowhere"
    assert refusal(folder) == (
        f"no records in {folder}; `python -m data_prep --source SOURCE --out {folder}` makes them, "
        "where SOURCE is cifar-10-python.tar.gz, an image folder, or synthetic"
    )


def test_a_folder_without_records_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("none here")
    (tmp_path / "training.tfrecords").write_bytes(b"")
    assert refusal(tmp_path).startswith(
        f"no records in {tmp_path}; it holds notes.txt, training.tfrecords; training reads "
        "SPLIT.tfrecord or SPLIT-00000-of-00002, SPLIT being train, validation, valid, val, eval, "
        "test; `python -m data_prep --source SOURCE --out "
    )


def test_a_file_in_place_of_the_folder_is_refused(tutorial_data):
    path = tutorial_data / "train.tfrecords"
    assert refusal(path).startswith(f"no records in {path}; ")


def test_a_folder_of_an_unknown_scheme_is_refused():
    assert refusal("nothing://folder") == (
        "nothing://folder cannot be read: File system scheme 'nothing' not implemented (file: "
        "'nothing://folder'); make it a readable folder, or run the data_prep command again"
    )


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_file_whose_name_is_no_utf8_does_no_harm(copy, scheme):
    (copy / os.fsdecode(b"a\xff")).touch()
    assert open_records(f"{scheme}{copy}").counts == {"train": 90, "validation": 10, "eval": 20}
    (copy / "INCOMPLETE").touch()
    assert "are half-written" in refusal(f"{scheme}{copy}")


def test_a_half_written_folder_is_refused(copy):
    (copy / "INCOMPLETE").touch()
    assert refusal(copy) == (
        f"the records in {copy} are half-written; run the same data_prep command again"
    )


@pytest.mark.parametrize("name", ["train-00001-of-00002.tfrecords", "validation.tfrecords"])
def test_a_missing_file_of_the_manifest_is_named(copy, name):
    (copy / name).unlink()
    assert refusal(copy).startswith(f"{copy}/{name} cannot be read: No such file or directory; ")


def test_what_lies_beside_the_files_of_the_manifest_is_none_of_them(copy):
    before = open_records(str(copy))
    record_files.write_numbered(copy, "train", 3)
    (copy / "test.tfrecord").touch()
    assert open_records(str(copy)) == before


def test_a_file_of_another_size_than_the_manifest_says_is_named(copy):
    path = copy / "eval.tfrecords"
    path.write_bytes(path.read_bytes()[:-1])
    assert refusal(copy) == (
        f"{path} has 62,519 bytes, the manifest says 62,520; run data_prep with --force"
    )


@pytest.mark.parametrize("keep", [3, 12, 3125])
def test_a_file_that_ends_inside_a_record_is_named_without_a_manifest_too(tmp_path, keep):
    path = tmp_path / "train.tfrecords"
    rows = [record_files.example(IMAGE, label) for label in range(3)]
    record_files.write_file(path, rows)
    size = path.stat().st_size // 3
    path.write_bytes(path.read_bytes()[: 2 * size + keep])
    assert refusal(tmp_path) == f"{path} ends inside record 2; make it again with data_prep"


def test_records_are_counted_by_their_framing(tmp_path):
    path = tmp_path / "any.tfrecords"
    record_files.write_file(path, [b"", b"x" * 1000, b"yz"])
    assert count_records(str(path)) == 3
    path.write_bytes(b"")
    assert count_records(str(path)) == 0


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def edited(text: str) -> str:
        manifest = json.loads(text)
        change(manifest)
        return json.dumps(manifest)

    return edited


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: "[]",
        lambda text: '"records"',
        lambda text: "",
        edit(lambda manifest: manifest.pop("format_version")),
        edit(lambda manifest: manifest.pop("channel_mean")),
        edit(lambda manifest: manifest.pop("source")),
        edit(lambda manifest: manifest.pop("splits")),
        edit(lambda manifest: manifest.update(splits=["train"])),
        edit(lambda manifest: manifest.update(class_names=["cat"])),
        edit(lambda manifest: manifest.update(channel_deviation=[60.0])),
        edit(lambda manifest: manifest.update(channel_mean=[1.0, float("nan"), 1.0])),
        edit(lambda manifest: manifest["splits"]["train"].pop("files")),
        edit(lambda manifest: manifest["splits"]["train"]["files"][0].pop("bytes")),
        edit(lambda manifest: manifest["splits"]["train"].update(records=91)),
    ],
)
def test_a_manifest_that_data_prep_did_not_write_is_refused(copy, damage):
    path = copy / "manifest.json"
    path.write_text(damage(path.read_text()))
    message = refusal(copy)
    assert message.startswith(f"{path} is no manifest of data_prep (")
    assert message.endswith("); run data_prep with --force")


ODD_VALUES = [
    None, True, 0, -1, 1.5, float("inf"), float("nan"), 10**400, "", "x", "\ud800", [], ["x"], {},
    {"x": 1},
]  # fmt: skip


def places(value: Any, *before: Any) -> Iterator[tuple[Any, ...]]:
    """Yields the keys and indices that lead to each value in a JSON document."""
    yield before
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], *before, key)


def test_odd_values_anywhere_in_a_manifest_are_read_or_refused_in_one_line(copy):
    path = copy / "manifest.json"
    text, messages = path.read_text(), []
    for place in places(json.loads(text)):
        for value in ODD_VALUES:
            holder = {"manifest": json.loads(text)}
            parent = functools.reduce(operator.getitem, ("manifest", *place)[:-1], holder)
            parent[("manifest", *place)[-1]] = value
            path.write_text(json.dumps(holder["manifest"]))
            try:
                records = open_records(str(copy))
            except DataError as error:
                messages.append(str(error))
                continue
            assert records.counts == {"train": 90, "validation": 10, "eval": 20}, (place, value)
            assert len(records.fingerprints()["train"]) == 2
            assert len([name.encode() for name in records.manifest["class_names"]]) == 10
            assert np.isfinite([records.channel_mean, records.channel_deviation]).all()
    assert len(messages) > 500
    assert [message for message in messages if "\n" in message] == []


def test_a_manifest_of_a_later_format_is_refused_whatever_else_it_holds(copy):
    path = copy / "manifest.json"
    path.write_text('{"format_version": 2, "shards": {}}')
    assert refusal(copy) == (
        f"{path} has format version 2, this code reads 1; run data_prep with --force"
    )


def test_names_in_a_manifest_cannot_write_on_the_terminal(copy):
    path = copy / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["class_names"][0] = "air\x1b[31m\nplane"
    manifest["source"]["kind"] = "a\x07"
    path.write_text(json.dumps(manifest))
    found = open_records(str(copy)).manifest
    assert (found["class_names"][0], found["source"]["kind"]) == ("air [31m plane", "a ")


def test_images_without_variation_in_a_channel_are_refused(copy):
    path = copy / "manifest.json"
    change = edit(lambda manifest: manifest.update(channel_deviation=[60.0, 0.0, 60.0]))
    path.write_text(change(path.read_text()))
    assert "have the same value everywhere in a channel" in refusal(copy)


def make_folder(path):
    path.unlink()
    path.mkdir()


def make_dangling(path):
    path.unlink()
    path.symlink_to(path.parent / "gone")


@pytest.mark.parametrize("data", ["prepared_data", "tutorial_data"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [(make_folder, "Is a directory"), (make_dangling, "No such file or directory")],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(
    request, tmp_path, data, damage, reason
):
    shutil.copytree(request.getfixturevalue(data), tmp_path, dirs_exist_ok=True)
    path = tmp_path / "validation.tfrecords"
    damage(path)
    assert refusal(tmp_path) == (
        f"{path} cannot be read: {reason}; make it a readable file, or run the data_prep command "
        "again"
    )


@pytest.mark.parametrize("with_manifest", [True, False])
def test_a_file_without_permission_is_named(prepared_data, with_manifest):
    with open_folder() as folder:
        shutil.copytree(prepared_data, folder, dirs_exist_ok=True)
        folder.chmod(0o755)
        if not with_manifest:
            (folder / "manifest.json").unlink()
        path = folder / "validation.tfrecords"
        path.chmod(0)
        with unprivileged():
            assert refusal(folder) == (
                f"{path} cannot be read: Permission denied; make it a readable file, or run the "
                "data_prep command again"
            )


@pytest.mark.parametrize("inside", ["", "data"], ids=["itself", "the folder above it"])
def test_a_folder_without_permission_is_not_taken_for_an_empty_one(prepared_data, inside):
    with open_folder() as locked:
        folder = locked / inside
        shutil.copytree(prepared_data, folder, dirs_exist_ok=True)
        locked.chmod(0o700)
        with unprivileged():
            assert refusal(folder) == (
                f"{folder} cannot be read: Permission denied; make it a readable folder, or run "
                "the data_prep command again"
            )


def two_labels() -> bytes:
    message = tf.train.Example.FromString(record_files.example(IMAGE, 1))
    message.features.feature["label"].int64_list.value.append(2)
    return bytes(message.SerializeToString())


def text_label() -> bytes:
    message = tf.train.Example.FromString(record_files.example(IMAGE, 1))
    message.features.feature["label"].bytes_list.value.append(b"cat")
    return bytes(message.SerializeToString())


def no_image() -> bytes:
    message = tf.train.Example.FromString(record_files.example(IMAGE, 1))
    del message.features.feature["image"]
    return bytes(message.SerializeToString())


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (record_files.example(IMAGE, 10), "bad record: a label must be in [0, 10)"),
        (record_files.example(IMAGE, -1), "bad record: a label must be in [0, 10)"),
        (record_files.example(IMAGE[1:], 1), "bad record: an image must have 3,072 bytes"),
        (record_files.example(IMAGE * 2, 1), "bad record: an image must have 3,072 bytes"),
        (b"no protobuf", "a record is not an image with a label"),
        (no_image(), "a record is not an image with a label"),
        (text_label(), "a record is not an image with a label"),
        (two_labels(), "a record is not an image with a label"),
    ],
    ids=range(8),
)
def test_a_bad_record_is_one_clear_line(tmp_path, record, what):
    good = record_files.example(IMAGE, 1)
    record_files.write_file(tmp_path / "eval.tfrecords", [good, record, good])
    assert error_while_reading(tmp_path) == (
        f"{what} in {tmp_path}; `python -m data_prep verify {tmp_path}` names it"
    )


def test_a_flipped_bit_is_one_clear_line(tmp_path):
    path = tmp_path / "eval.tfrecords"
    record_files.write_file(path, [record_files.example(IMAGE, 1)])
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    damaged = f"a file is damaged in {tmp_path}; `python -m data_prep verify {tmp_path}` names it"
    assert error_while_reading(tmp_path) == damaged
    config = TrainConfig(data_dir=str(tmp_path))
    with (
        pytest.raises(DataError) as refused,
        tf_errors.clear_errors(config),
    ):
        check_evaluation(open_records(str(tmp_path)))
    assert str(refused.value) == damaged


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
    "train": lambda records: training_batches(records, TrainInput(5, seed=1)),
    "evaluate": lambda records: evaluation_batches(records, "train", 30),
}


def replaced(folder: pathlib.Path) -> str:
    return (
        f"the records in {folder} were replaced while they were read; when data_prep has ended, "
        "run the same command again"
    )


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS.keys())
def test_records_of_a_conversion_that_ends_meanwhile_are_refused(prepared_data, copy, reading):
    records = open_records(str(copy))
    words = ["--source", str(prepared_data.parent / "cifar-10-batches-py"), "--out", str(copy)]
    assert cli.main([*words, "--shards", "2", "--seed", "1"]) == 0
    assert open_records(str(copy)).counts == records.counts
    assert error_of(records, reading) == replaced(copy)


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS.keys())
def test_records_that_a_conversion_replaces_meanwhile_are_refused(copy, reading):
    records = open_records(str(copy))
    (copy / "manifest.json").unlink()
    assert error_of(records, reading) == replaced(copy)
    (copy / "train-00001-of-00002.tfrecords").unlink()
    assert error_of(records, reading) == replaced(copy)


@pytest.mark.parametrize("end", ["/", "//", "/../data"])
def test_a_file_that_is_gone_is_one_line_however_the_folder_is_spelt(copy, end):
    place = f"{copy}{end.replace('data', copy.name)}"
    records = open_records(place)
    (copy / "manifest.json").unlink()
    assert error_of(records, READINGS["load"]) == replaced(place)


# As many records as are parsed at once, and then some; a batch of these ends where the file did.
@pytest.mark.parametrize("number", [2048, 2047, 1])
@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS.keys())
def test_another_number_of_records_than_before_is_refused(tmp_path, number, reading):
    record_files.write_numbered(tmp_path, "train", 1024)
    records = open_records(str(tmp_path))
    record_files.write_numbered(tmp_path, "train", number)
    assert error_of(records, reading) == replaced(tmp_path)
