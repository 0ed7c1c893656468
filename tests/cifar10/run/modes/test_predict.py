"""Prediction: files and folders; what cannot be used is named, and the rest answered."""

import io
import json
import os
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from PIL import Image

from cifar10.config.train_config import TrainConfig
from cifar10.errors import Stopped, UserError
from cifar10.host.process import StopRequest
from cifar10.output import model_settings
from cifar10.run.modes import predict
from cifar10.run.modes.predict import describe, read_image
from cifar10.schema import CLASS_NAMES
from tests.cifar10 import steps


def encode(kind: str) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


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
def ask(output, tmp_path, monkeypatch, capsys):
    """A function that predicts names relative to an empty folder; returns what is printed."""
    # The sizes of a process's thread pools are given once, and other tests have used them here.
    monkeypatch.setattr("cifar10.run.job.use_devices", lambda *devices: None)
    monkeypatch.chdir(tmp_path)

    def run(*names: str, **settings: Any) -> str:
        config = TrainConfig(
            mode="predict", output_dir=str(output), num_gpus=0, images=names, **settings
        )
        predict.predict(config, StopRequest())
        return str(capsys.readouterr().out)

    return run


def test_the_three_likeliest_classes_are_named_in_order():
    probabilities = np.array([0.001, 0, 0.006, 0.931, 0.011, 0.04, 0, 0.01, 0.001, 0], np.float32)
    assert describe(probabilities, CLASS_NAMES) == "cat 93.1 %, dog 4.0 %, deer 1.1 %"


def test_an_image_is_resized_as_those_of_training_and_the_line_says_so(ask, tmp_path):
    Image.new("RGB", (64, 32), "white").save(tmp_path / "wide.webp", lossless=True)
    padded = Image.new("RGB", (32, 32))
    padded.paste("white", (0, 8, 32, 24))
    padded.save(tmp_path / "by-hand.bmp")
    wide, by_hand = ask("wide.webp", "by-hand.bmp").splitlines()
    assert wide.endswith(" %  (64x32, padded to 32x32)")
    assert by_hand.endswith(" %")
    assert wide.removeprefix("wide.webp  ").startswith(by_hand.removeprefix("by-hand.bmp"))


def test_folders_stand_for_the_images_in_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ("a.png", "b/c.JPG", "b/d/e.gif", "b/.hidden.png", "b/.f/g.png", "h.webp", "i[1].png")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32)).save(tmp_path / name)
    (tmp_path / "b" / "notes.txt").write_text("no image")

    def asked(*places: str) -> list[str]:
        return [path for path, _ in predict.find_files(places)]

    assert asked("b") == ["b/c.JPG", "b/d/e.gif"]
    assert asked("h.webp", "b/d", "a.png") == ["h.webp", "b/d/e.gif", "a.png"]
    assert asked("i[1].png", "*.png") == ["i[1].png", "*.png"]


def test_a_bad_file_does_not_keep_the_others_from_their_answers(ask, tmp_path, capsys):
    for name in ("a.png", "c.png"):
        (tmp_path / name).write_bytes(encode("PNG"))
    (tmp_path / "b.png").write_text("no image")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError) as ended:
        ask("missing.png", "a.png", "b.png", "empty", "c.png", "*.webp")
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()] == ["a.png", "c.png"]
    errors = printed.err.splitlines()
    assert errors[0].startswith("error: missing.png cannot be read: missing.png; No such file")
    assert errors[1].startswith("error: b.png: not a sound PNG, JPEG, WEBP, GIF or BMP image: ")
    assert errors[2] == ("error: empty holds no image files (.png, .jpg, .jpeg, .webp, .gif, .bmp)")
    assert errors[3].startswith("error: *.webp cannot be read: ")
    assert len(errors) == 4
    assert str(ended.value) == "4 of 6 image files could not be used; the lines above name them"


def test_json_has_an_object_a_line_also_of_bad_files(ask, tmp_path, capsys):
    Image.new("RGB", (32, 32), "red").save(tmp_path / "a.png")
    Image.new("RGB", (64, 48), "red").save(tmp_path / "b.png")
    (tmp_path / "c.png").write_text("no image")
    with pytest.raises(UserError, match="1 of 3 image files could not be used"):
        ask("a.png", "b.png", "c.png", json=True)
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert list(first) == ["file", "class", "class_id", "probabilities", "size", "resize"]
    assert (first["file"], first["size"], first["resize"]) == ("a.png", [32, 32], None)
    assert list(first["probabilities"]) == list(CLASS_NAMES)
    assert sum(first["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    best = max(first["probabilities"], key=first["probabilities"].get)
    assert (first["class"], first["class_id"]) == (best, CLASS_NAMES.index(best))
    assert (second["file"], second["size"], second["resize"]) == ("b.png", [64, 48], "pad")
    assert list(third) == ["file", "error"]
    assert third["error"].startswith("c.png: not a sound ")


def test_more_files_than_a_batch_are_answered_in_order(ask, tmp_path):
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


def test_a_name_that_is_no_utf8_is_refused(tmp_path):
    path = str(tmp_path / "\udcff.png")
    (tmp_path / "\udcff.png").write_bytes(encode("PNG"))
    assert predict.find_files([str(tmp_path), path]) == [(path, "")] * 2
    assert "its name is no UTF-8; rename it" in refusal(path)


def test_an_image_may_lie_anywhere_that_gfile_opens():
    with tf.io.gfile.GFile("ram://folder/cat.png", "wb") as file:
        file.write(encode("WEBP"))
    assert read_image("ram://folder/cat.png", "crop").size == (40, 40)


def refusal(path: object) -> str:
    with pytest.raises(UserError) as refused:
        read_image(str(path), "stretch")
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_pipe_is_not_read(tmp_path):
    path = tmp_path / "cat.png"
    os.mkfifo(path)
    words = "is no regular file; only those are read, no pipes and no devices"
    assert refusal(path) == f"{path} {words}"
