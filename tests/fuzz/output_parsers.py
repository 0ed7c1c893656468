"""The parsers of output and data folders, and of images to predict, which load TensorFlow."""

import functools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from cifar10 import schema
from cifar10.errors import ConfigError, DataError, UserError
from tests.fuzz import data_parsers, mutate, repair
from tests.fuzz.parser import Parser


def _json(*values: Any) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


_METRICS = b"".join(
    json.dumps({"split": "train", "step": step, "loss": 2.0}).encode() + b"\n" for step in (5, 10)
)


def _continue_metrics(data: bytes, folder: Path) -> None:
    from cifar10.output.history import Metrics

    path = folder / "metrics.jsonl"
    path.write_bytes(data)
    Metrics.load(str(path), "model.ckpt-5", 5, lambda line: None).add("train", 6, {})
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows[-1]["step"] == 6
    assert all(row["step"] <= 5 for row in rows[:-1])


_ROW = {"step": 5, "epoch": 0.1, "loss": 2.0, "accuracy": 0.1, "seconds": 3.0}
_TRAIN_ROW = {**_ROW, "learning_rate": 0.1, "images_per_sec": 9.0}
_HISTORY = {"train": [_TRAIN_ROW, _TRAIN_ROW], "validation": [_ROW]}


_SETTINGS = {
    "model": "resnet", "batch_norm": "tower", "batch_norm_epsilon": 1e-5, "optimizer": "nesterov",
    "lookahead_steps": 0, "num_layers": 8,
}  # fmt: skip
_RUN = {
    "settings": _SETTINGS, "class_names": list(schema.CLASS_NAMES), "resize": "crop",
    "init_checkpoint": None, "records": {"train": ["a"]}, "seed": 1, "owner": "12",
    "training": {"master_validates": True, "ended_at_step": 5, "status": ""}, "history": _HISTORY,
}  # fmt: skip


def _read_run(data: bytes, folder: Path) -> None:
    from cifar10.config.train_config import TrainConfig
    from cifar10.output import model_settings, run_file
    from cifar10.output.history import History

    (folder / "run.json").write_bytes(data)
    run = run_file.read(str(folder))
    if run.training is not None:
        assert isinstance(run.training["master_validates"], bool)
        assert run.training["ended_at_step"] is None or run.training["ended_at_step"] * 0 == 0
        run.training["status"].strip()
    applied, names = model_settings.apply(TrainConfig(output_dir=str(folder), mode="evaluate"))
    assert len(names) == 10
    applied.model_title.strip()
    history = History.load(str(folder), 100)
    assert history.seconds >= 0 or history.seconds < 0
    history.save()
    shutil.copy(_checkpoint() / "model.ckpt-5.index", folder)
    config = TrainConfig(output_dir=str(folder), num_layers=8)
    model_settings.check_same(config, schema.CLASS_NAMES)


@functools.cache
def _checkpoint() -> Path:
    """Returns a folder with a checkpoint of a step, which is kept until the process ends."""
    import tensorflow.compat.v1 as tf

    folder = tempfile.TemporaryDirectory()
    _KEPT.append(folder)
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.train.create_global_step()
        session.run(tf.global_variables_initializer())
        session.run(step.assign(5))
        tf.train.Saver(save_relative_paths=True).save(session, f"{folder.name}/model.ckpt", 5)
    return Path(folder.name)


_KEPT: list[Any] = []


def _read_best(data: bytes, folder: Path) -> None:
    from cifar10.output import checkpoints

    (folder / "best").mkdir()
    (folder / "best" / "best.json").write_bytes(data)
    shutil.copy(_checkpoint() / "model.ckpt-5.index", folder / "best" / "model.ckpt-5.index")
    checkpoints.best(str(folder))


def _states() -> list[bytes]:
    return [(_checkpoint() / "checkpoint").read_bytes()]


def _continue(data: bytes, folder: Path) -> None:
    from cifar10.output import checkpoints, recovery

    for path in _checkpoint().iterdir():
        shutil.copy(path, folder)
    (folder / "checkpoint").write_bytes(data)
    found = recovery.checkpoint_to_continue(str(folder), lambda line: None)
    assert found is not None
    assert checkpoints.latest_step(str(folder)) == 5


def _indices() -> list[bytes]:
    return [(_checkpoint() / "model.ckpt-5.index").read_bytes()]


def _continue_from_index(data: bytes, folder: Path) -> None:
    from cifar10.output import recovery

    for path in _checkpoint().iterdir():
        shutil.copy(path, folder)
    (folder / "model.ckpt-5.index").write_bytes(data)
    recovery.checkpoint_to_continue(str(folder), lambda line: None)


def _open_records(data: bytes, folder: Path) -> None:
    from cifar10.input import records

    for split in schema.SPLITS:
        with (folder / f"{split}.tfrecords").open("wb") as file:
            file.truncate(6_000)
    (folder / schema.MANIFEST_NAME).write_bytes(data)
    found = records.open_records(str(folder))
    assert all(isinstance(count, int) and count > 0 for count in found.counts.values())
    assert all(float(value) > 0 for value in found.channel_deviation)


def _count_records(data: bytes, folder: Path) -> None:
    from cifar10.input import records

    (folder / "train.tfrecords").write_bytes(data)
    assert records.count_records(str(folder / "train.tfrecords")) >= 0


def _predict(data: bytes, folder: Path) -> None:
    from cifar10.run.modes.predict import read_image

    path = folder / "x.png"
    path.write_bytes(data)
    for resize in schema.RESIZES:
        assert read_image(str(path), resize).pixels.shape == (32, 32, 3)


def _decode_in_graph(data: bytes, _: Path) -> None:
    import tensorflow as tf

    from cifar10.input import decode

    try:
        assert decode.decode(tf.constant(data)).shape == (32, 32, 3)
    except tf.errors.InvalidArgumentError as error:
        raise UserError(str(error).replace("\n", " ") or "refused") from error


_BEST = {"step": 5, "accuracy": 0.5, "name": "model.ckpt-5"}

PARSERS = [
    Parser(
        "training-run", lambda: _json(_RUN, {**_RUN, "training": None}), _read_run,
        (UserError, ConfigError), mutate.of_json, needs_tensorflow=True,
    ),
    Parser(
        "metrics-jsonl", lambda: [_METRICS], _continue_metrics, (), mutate.of_text,
        needs_tensorflow=True,
    ),
    Parser(
        "best-json", lambda: _json(_BEST), _read_best, (UserError,), mutate.of_json,
        needs_tensorflow=True,
    ),
    Parser(
        "checkpoint-state", _states, _continue, (UserError,), mutate.of_text, needs_tensorflow=True,
    ),
    Parser(
        "checkpoint-index", _indices, _continue_from_index, (UserError,), needs_tensorflow=True,
    ),
    Parser(
        "data-folder", data_parsers.manifests, _open_records, (DataError,), mutate.of_json,
        needs_tensorflow=True,
    ),
    Parser(
        "counted-records", lambda: list(data_parsers._records()), _count_records, (DataError,),
        needs_tensorflow=True,
    ),
    Parser(
        "predicted-image", data_parsers.images, _predict, (UserError,), repair=repair.png,
        needs_tensorflow=True, most_bytes=512 << 20,
    ),
    Parser(
        "exported-decoder", data_parsers.images_of_export, _decode_in_graph, (UserError,),
        repair=repair.png, needs_tensorflow=True, most_bytes=512 << 20,
    ),
]  # fmt: skip
