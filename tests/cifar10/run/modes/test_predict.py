"""Prediction's words, and image files that are refused before TensorFlow sees them."""

import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from PIL import Image

from cifar10.config.train_config import TrainConfig
from cifar10.errors import UserError
from cifar10.output import model_settings
from cifar10.run.job import make_job
from cifar10.run.modes import predict
from cifar10.run.modes.predict import describe, read_image
from cifar10.schema import CLASS_NAMES
from tests.cifar10 import steps
from tests.fuzz import corpus


def encode(kind: str) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG file that claims a size and holds no pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + crc

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def test_the_three_likeliest_classes_are_named_in_order():
    probabilities = np.array([0.001, 0, 0.006, 0.931, 0.011, 0.04, 0, 0.01, 0.001, 0], np.float32)
    assert describe(probabilities, CLASS_NAMES) == "cat 93.1 %, dog 4.0 %, deer 1.1 %"


def test_classes_are_named_as_the_records_name_them():
    names = [f"shape-{index}" for index in range(10)]
    assert describe(np.eye(10)[9], names).startswith("shape-9 100.0 %, shape-0 0.0 %, ")


def test_a_jpeg_gets_the_answer_to_what_pillow_makes_of_it(tmp_path, monkeypatch, capsys):
    config = TrainConfig(model="mlp", train_batch_size=12, output_dir=str(tmp_path), num_gpus=0)
    model_settings.write(config, CLASS_NAMES)
    with steps.training(config, steps.make_plan(1)) as run:
        run.shake()  # Weights so large that a level of a few pixels shows in the percentages.
        run.save(tmp_path)
    paths = [str(tmp_path / name) for name in ("a.jpg", "a.png")]
    Image.open(io.BytesIO(encode("JPEG"))).crop((0, 0, 32, 32)).save(paths[0], quality=75)
    Image.open(paths[0]).save(paths[1])
    # The sizes of a process's thread pools are given once, and other tests have used them here.
    monkeypatch.setattr(predict, "start_job", make_job)
    asked = TrainConfig(mode="predict", output_dir=str(tmp_path), num_gpus=0, images=tuple(paths))
    predict.predict(asked)
    of_jpeg, of_png = (line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (of_jpeg[0], of_png[0]) == tuple(paths)
    assert of_jpeg[1] == of_png[1]


def test_an_image_that_only_pillow_decodes_is_named(tmp_path, monkeypatch):
    config = TrainConfig(model="mlp", train_batch_size=12, output_dir=str(tmp_path), num_gpus=0)
    model_settings.write(config, CLASS_NAMES)
    with steps.training(config, steps.make_plan(1)) as run:
        run.save(tmp_path)
    monkeypatch.setattr(predict, "start_job", make_job)
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    good.write_bytes(encode("PNG"))
    bad.write_bytes(corpus.inputs("predicted-image")[0].read_bytes())
    images = (str(good), str(bad))
    asked = TrainConfig(mode="predict", output_dir=str(tmp_path), num_gpus=0, images=images)
    with pytest.raises(UserError, match=r"bad\.png is a PNG or JPEG image that TensorFlow cannot"):
        predict.predict(asked)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_an_images_bytes_are_handed_over_unchanged(tmp_path, kind):
    path = tmp_path / "image.any"
    path.write_bytes(encode(kind))
    assert read_image(str(path)) == encode(kind)


def test_an_image_may_lie_anywhere_that_gfile_opens():
    with tf.io.gfile.GFile("ram://cat.png", "wb") as file:
        file.write(encode("PNG"))
    assert read_image("ram://cat.png") == encode("PNG")


def refusal(path: object) -> str:
    with pytest.raises(UserError) as refused:
        read_image(str(path))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_missing_file_is_refused_by_name(tmp_path):
    path = tmp_path / "cat.png"
    assert refusal(path).startswith(f"{path} cannot be read: {path}; No such file")


def test_a_folder_is_refused_by_name(tmp_path):
    assert refusal(tmp_path).startswith(f"{tmp_path} cannot be read: ")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a text",
        encode("GIF"),
        encode("BMP"),
        encode("PNG")[:-1000],
        encode("JPEG")[:-300],
        encode("PNG")[:20],
        encode("PNG")[:400] + bytes(100) + encode("PNG")[500:],
    ],
    ids=["empty", "text", "GIF", "BMP", "cut PNG", "cut JPEG", "cut header", "damaged PNG"],
)
def test_what_is_no_whole_png_or_jpeg_is_refused_by_name(tmp_path, content):
    path = tmp_path / "cat.png"
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path} is not a whole PNG or JPEG image: ")


def test_an_image_that_would_fill_the_memory_is_refused_by_its_header(tmp_path):
    path = tmp_path / "huge.png"
    path.write_bytes(png_header(10_000, 5_001))
    assert refusal(path) == f"{path} has 10000x5001 pixels, the limit is 50,000,000"


@pytest.mark.parametrize("side", [10_000, 20_000, 2_000_000_000])
def test_an_image_of_any_claimed_size_is_refused_in_one_line(tmp_path, side):
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header(side, side))
    assert " pixels" in refusal(path)
