"""The SavedModel: what it answers, and that it is whole or not there."""

import io
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from PIL import Image

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.host.files import sync_tree
from cifar10.output import model_settings
from cifar10.run.modes import export
from cifar10.schema import CLASS_NAMES
from cifar10.step.devices import plan_devices
from cifar10.step.params import ModelParams
from tests.cifar10.saved import save_untrained
from tests.failing_disk import every_rename_is_synced, failures_of

PIXELS = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)


def params_of(config: TrainConfig) -> ModelParams:
    return ModelParams(config, plan_devices(config))


class Exported(NamedTuple):
    """A model for a client without our code; those are in tests/outside."""

    folder: pathlib.Path
    model: Any
    renamed: list[str]

    def of_pixels(self, pixels: np.ndarray) -> dict[str, Any]:
        return self.model.signatures["serving_default"](images=tf.constant(pixels[None]))

    def of_files(self, *files: bytes) -> Any:
        found = self.model.signatures["encoded"](bytes=tf.constant(files))
        return found["probabilities"].numpy()


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The model of a run of two towers whose images were cropped."""
    folder = str(tmp_path_factory.mktemp("export") / "output")
    config = TrainConfig(model="mlp", hidden_units=7, output_dir=folder, num_towers=2)
    checkpoint = save_untrained(config)
    model_settings.write(config, CLASS_NAMES, resize="crop")
    with every_rename_is_synced() as renamed:
        path = export.export(params_of(config), CLASS_NAMES, checkpoint)
    return Exported(pathlib.Path(path), tf2.saved_model.load(path), renamed)


def test_raw_images_and_files_give_the_same_probabilities(exported):
    assert sorted(exported.model.signatures) == ["encoded", "serving_default"]
    answer = exported.of_pixels(PIXELS)
    raw = answer["probabilities"].numpy()
    (number,) = np.argmax(raw, axis=1)
    assert answer["class_ids"].numpy().tolist() == [number]
    assert answer["classes"].numpy().tolist() == [CLASS_NAMES[number].encode()]
    png = encode(Image.fromarray(PIXELS), "PNG")
    np.testing.assert_allclose(exported.of_files(png, png), [raw[0]] * 2, rtol=1e-5)
    np.testing.assert_allclose(raw.sum(axis=1), [1.0], rtol=1e-5)
    wide = Image.new("RGB", (96, 32), "white")
    wide.paste(Image.fromarray(PIXELS), (32, 0))
    found = exported.of_files(png, encode(wide, "PNG"))
    np.testing.assert_allclose(found, [raw[0]] * 2, rtol=1e-4)


def test_an_export_is_bound_to_no_device(exported):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.load(session, ["serve"], str(exported.folder))
        operations = session.graph.get_operations()
    assert {op.device for op in operations if op.type in ("MatMul", "VarHandleOp")} == {""}
    assert not [op.name for op in operations if "tower_1/" in op.name]


def test_an_export_has_no_ops_of_our_library(tmp_path, compiled_kernels):
    config = TrainConfig(num_layers=8, kernels="own", output_dir=str(tmp_path), num_gpus=0)
    params = params_of(config)
    assert params.plan.kernels == "own"
    with tf.Graph().as_default() as graph:
        tf.train.create_global_step()
        export._build(params, CLASS_NAMES)
        types = [op.type for op in graph.get_operations()]
    assert types.count("Conv2D") == 2 * 7  # for each of the two signatures
    assert [one for one in types if one.startswith("Cifar10")] == []


def test_an_export_is_on_disk_before_it_is_named(exported):
    assert exported.renamed == [str(exported.folder)]
    assert [path.name for path in exported.folder.parent.iterdir()] == [exported.folder.name]


@pytest.fixture
def write(tmp_path, monkeypatch) -> Callable[[], str]:
    """A function that exports a model that is two small files."""

    def small(params: Any, class_names: Any, checkpoint: str, part: str) -> None:
        os.makedirs(part)
        for name in ("saved_model.pb", "variables"):
            (pathlib.Path(part) / name).write_text(name)
        sync_tree(part)

    monkeypatch.setattr(export, "_write", small)
    params = params_of(TrainConfig(model="mlp", output_dir=str(tmp_path / "output")))
    return lambda: export.export(params, CLASS_NAMES, "")


def test_an_export_has_a_higher_number_than_any_before_even_if_the_clock_went_back(
    write, tmp_path, monkeypatch
):
    numbers = []
    for seconds in (1795448234.9, 1795444634.0):
        monkeypatch.setattr(time, "time", lambda now=seconds: now)
        numbers.append(pathlib.Path(write()).name)
        (tmp_path / "output/export/2000000000.older").mkdir(exist_ok=True)
    assert numbers == ["1795448234", "1795448235"]


def test_whatever_fails_an_export_is_whole_or_not_there(write, tmp_path):
    parent, failed = tmp_path / "output/export", 0
    for _ in failures_of(write):
        failed += 1
        for folder in parent.glob("[0-9]*"):
            assert len(list(folder.iterdir())) == 2
    assert failed >= 4  # sync of files and folders, rename, sync
    assert len(list(parent.glob("[0-9]*"))) >= 1
    assert list(parent.glob(".part*")) == []


def test_an_export_that_cannot_be_written_does_not_begin(tmp_path, monkeypatch):
    config = TrainConfig(mode="export", model="mlp", output_dir=str(tmp_path / "output"))
    checkpoint = save_untrained(config)
    (tmp_path / "output/export").write_text("a file")
    monkeypatch.setattr("cifar10.run.job.use_devices", lambda *devices: None)
    with pytest.raises(ConfigError) as refusal:
        export.export_mode(config)
    message = str(refusal.value)
    assert message.startswith(f"the folder for exports {tmp_path}/output/export cannot be writ")
    assert message.endswith(
        f"; name another --output-dir, and the model by --checkpoint {checkpoint}"
    )
