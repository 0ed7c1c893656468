"""Prediction, and the SavedModel: what they answer, and that an export is whole or not there."""

import json
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from PIL import Image

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, Stopped, UserError
from cifar10.host.files import sync_tree
from cifar10.host.process import StopRequest
from cifar10.output import model_settings
from cifar10.run import export, predict
from cifar10.run.predict import describe
from cifar10.schema import CLASS_NAMES
from cifar10.step.devices import plan_devices
from cifar10.step.params import ModelParams
from tests.cifar10 import steps
from tests.cifar10.saved import save_untrained
from tests.data_prep.made import encode
from tests.failing_disk import every_rename_is_synced, failures_of

PIXELS = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The output folder of a model whose answers depend on each pixel; it pads other sizes."""
    folder = tmp_path_factory.mktemp("output")
    config = TrainConfig(model="mlp", train_batch_size=12, output_dir=str(folder), num_gpus=0)
    model_settings.write(config, CLASS_NAMES, resize="pad")
    with steps.training(config, steps.make_plan(1)) as run:
        run.shake()  # Weights so large that a level of a few pixels shows in the percentages.
        run.save(folder)
    return folder


@pytest.fixture
def ask(output, tmp_path, monkeypatch, capsys, pools_stay):
    """A function that predicts names relative to an empty folder; returns what is printed."""
    monkeypatch.chdir(tmp_path)

    def run(*names: str, **settings: Any) -> str:
        config = TrainConfig(
            mode="predict", output_dir=str(output), num_gpus=0, images=names, **settings
        )
        predict.predict(config, StopRequest())
        return str(capsys.readouterr().out)

    return run


def test_the_three_likeliest_classes_are_named_in_order():
    shares = [0.001, 0, 0.006, 0.931, 0.011, 0.04, 0, 0.01, 0.001, 0]
    answer = {"probabilities": dict(zip(CLASS_NAMES, shares)), "resize": None}
    assert describe(answer) == "cat 93.1 %, dog 4.0 %, deer 1.1 %"


def test_an_image_is_resized_as_those_of_training_and_the_line_says_so(ask, tmp_path):
    Image.new("RGB", (64, 32), "white").save(tmp_path / "wide.webp", lossless=True)
    padded = Image.new("RGB", (32, 32))
    padded.paste("white", (0, 8, 32, 24))
    padded.save(tmp_path / "by-hand.bmp")
    wide, by_hand = ask("wide.webp", "by-hand.bmp").splitlines()
    assert wide.endswith(" %  (64x32, pad to 32x32)")
    assert by_hand.endswith(" %")
    assert wide.removeprefix("wide.webp  ").startswith(by_hand.removeprefix("by-hand.bmp"))


def test_a_bad_file_does_not_keep_the_others_from_their_answers(ask, tmp_path, capsys):
    for name in ("a.png", "c.png"):
        (tmp_path / name).write_bytes(encode(Image.new("RGB", (40, 40)), "PNG"))
    (tmp_path / "b.png").write_text("no image")
    with pytest.raises(UserError, match="^b.png cannot be read: not a sound PNG, "):
        ask("missing.png", "a.png", "b.png", "c.png")
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()] == ["a.png", "c.png"]
    assert printed.err.startswith("error: missing.png cannot be read: missing.png; No such file")
    assert printed.err.count("\n") == 1


def test_json_has_an_object_a_line(ask, tmp_path):
    Image.new("RGB", (32, 32), "red").save(tmp_path / "a.png")
    Image.new("RGB", (64, 48), "red").save(tmp_path / "b.png")
    first, second = map(json.loads, ask("a.png", "b.png", json=True).splitlines())
    assert list(first) == ["file", "class", "class_id", "probabilities", "size", "resize"]
    assert (first["file"], first["size"], first["resize"]) == ("a.png", [32, 32], None)
    assert list(first["probabilities"]) == list(CLASS_NAMES)
    assert sum(first["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    best = max(first["probabilities"], key=first["probabilities"].get)
    assert (first["class"], first["class_id"]) == (best, CLASS_NAMES.index(best))
    assert (second["file"], second["size"], second["resize"]) == ("b.png", [64, 48], "pad")


def test_the_images_of_a_folder_are_answered_in_order_of_their_names(ask, tmp_path):
    names = [f"{number:02}.png" for number in range(25)]
    for name in names:
        Image.new("RGB", (32, 32)).save(tmp_path / name)
    lines = ask(".", eval_batch_size=10).splitlines()
    assert [line.split()[0] for line in lines] == [f"./{name}" for name in names]


def test_a_signal_ends_prediction(ask, tmp_path, monkeypatch):
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")

    def stopped(self: StopRequest) -> None:
        raise Stopped(2)

    monkeypatch.setattr(StopRequest, "check", stopped)
    with pytest.raises(Stopped):
        ask("a.png")


def test_a_name_cannot_control_the_terminal_nor_break_a_line(ask, tmp_path):
    Image.new("RGB", (32, 32)).save(tmp_path / "a\n\x1b[31m.png")
    assert ask(".").startswith("./a  [31m.png  ")


# The SavedModel for a client without our code; those are in tests/outside.


def params_of(config: TrainConfig) -> ModelParams:
    return ModelParams(config, plan_devices(config))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """An export of two towers, of cropped images; it is on disk before it has its name."""
    folder = str(tmp_path_factory.mktemp("export") / "output")
    config = TrainConfig(model="mlp", hidden_units=7, output_dir=folder, num_towers=2)
    checkpoint = save_untrained(config)
    model_settings.write(config, CLASS_NAMES, resize="crop")
    with every_rename_is_synced() as renamed:
        path = export.export(params_of(config), CLASS_NAMES, checkpoint)
    assert renamed == [path]
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
    return pathlib.Path(path)


def test_raw_images_and_files_give_the_same_probabilities(exported):
    model = tf2.saved_model.load(str(exported))
    assert sorted(model.signatures) == ["encoded", "serving_default"]
    answer = model.signatures["serving_default"](images=tf.constant(PIXELS[None]))
    raw = answer["probabilities"].numpy()
    (number,) = np.argmax(raw, axis=1)
    assert answer["class_ids"].numpy().tolist() == [number]
    assert answer["classes"].numpy().tolist() == [CLASS_NAMES[number].encode()]
    np.testing.assert_allclose(raw.sum(axis=1), [1.0], rtol=1e-5)
    wide = Image.new("RGB", (96, 32), "white")
    wide.paste(Image.fromarray(PIXELS), (32, 0))
    files = (encode(Image.fromarray(PIXELS), "PNG"), encode(wide, "PNG"))
    found = model.signatures["encoded"](bytes=tf.constant(files))["probabilities"].numpy()
    np.testing.assert_allclose(found, [raw[0]] * 2, rtol=1e-4)


def test_an_export_is_bound_to_no_device(exported):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.load(session, ["serve"], str(exported))
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
    assert [kind for kind in types if kind.startswith("Cifar10")] == []


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
    save_untrained(config)
    (tmp_path / "output/export").write_text("a file")
    refusal = f"^the folder for exports {tmp_path}/output/export cannot be written to: "
    with pytest.raises(ConfigError, match=refusal):
        export.export_mode(config)
