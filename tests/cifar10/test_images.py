"""Encoded images become what the model takes; Pillow is the judge."""

import io

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from PIL import Image

from cifar10.images import decode, decode_batch

PIXELS = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def decoded(data: bytes) -> np.ndarray:
    result = decode(tf.constant(data)).numpy()
    assert (result.dtype, result.shape) == (np.uint8, (32, 32, 3))
    return result


def test_a_png_of_the_right_size_is_taken_as_it_is():
    np.testing.assert_array_equal(decoded(encode(Image.fromarray(PIXELS))), PIXELS)


@pytest.mark.parametrize("mode", ["L", "P", "1"])
def test_gray_and_palette_images_become_rgb(mode):
    image = Image.fromarray(PIXELS).convert(mode)
    np.testing.assert_array_equal(decoded(encode(image)), np.asarray(image.convert("RGB")))


def test_an_alpha_channel_is_left_out():
    image = Image.fromarray(np.dstack([PIXELS, np.full((32, 32), 77, np.uint8)]))
    np.testing.assert_array_equal(decoded(encode(image)), PIXELS)


def test_a_jpeg_is_read():
    smooth = np.zeros((32, 32, 3), np.uint8) + np.arange(0, 256, 8, np.uint8)[:, None]
    data = encode(Image.fromarray(smooth), "JPEG", quality=95)
    difference = decoded(data).astype(int) - np.asarray(Image.open(io.BytesIO(data))).astype(int)
    assert np.abs(difference).max() <= 4


@pytest.mark.parametrize("size", [(64, 64), (16, 16), (100, 37), (1, 1)])
def test_other_sizes_are_resampled_with_antialiasing(size):
    random = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), np.uint8)
    image = Image.fromarray(random)
    expected = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(decoded(encode(image)).astype(int) - expected).max() <= 1


def test_a_fine_pattern_becomes_gray_not_noise():
    checks = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    gray = decoded(encode(Image.fromarray(checks)))
    assert gray.min() >= 120
    assert gray.max() <= 135


def test_a_batch_may_mix_formats_and_sizes():
    files = [
        encode(Image.fromarray(PIXELS)),
        encode(Image.new("L", (100, 50), 200)),
        encode(Image.new("RGB", (8, 8), (10, 20, 30)), "JPEG"),
    ]
    batch = decode_batch(tf.constant(files)).numpy()
    assert (batch.dtype, batch.shape) == (np.uint8, (3, 32, 32, 3))
    np.testing.assert_array_equal(batch[0], PIXELS)
    assert (batch[1] == 200).all()
    assert np.abs(batch[2].astype(int) - [10, 20, 30]).max() <= 2


def test_a_batch_may_be_empty():
    assert decode_batch(tf.constant([], tf.string)).shape == (0, 32, 32, 3)


def test_the_shape_is_known_while_the_graph_is_built():
    with tf.Graph().as_default():
        batch = decode_batch(tf.placeholder(tf.string, [None]))
        assert batch.shape.as_list() == [None, 32, 32, 3]
