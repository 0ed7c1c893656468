"""Encoded images become what the model takes; Pillow, or our use of it, is the judge."""

import io

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from PIL import ExifTags, Image

from cifar10 import image_file
from cifar10.input.decode import decode, decode_batch
from cifar10.schema import RESIZES

PIXELS = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def decoded(data: bytes) -> np.ndarray:
    result = decode(tf.constant(data)).numpy()
    assert (result.dtype, result.shape) == (np.uint8, (32, 32, 3))
    return result


def picture(height: int, width: int) -> np.ndarray:
    """Colours that change smoothly, an edge, and noise."""
    rows, columns = np.mgrid[0:height, 0:width]
    waves = np.stack(
        [np.sin(columns / 5 + rows / 9), np.cos(columns / 3), np.sin(rows / 4)], axis=2
    )
    edge = np.where(columns > width // 2, 40, -40)[:, :, None]
    noise = np.random.default_rng(0).normal(0, 20, (height, width, 3))
    return np.clip(128 + 80 * waves + edge + noise, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("quality", [10, 100])
def test_a_jpegs_pixels_are_those_of_pillow_to_the_last_bit(quality, subsampling):
    options = {"quality": quality, "subsampling": subsampling}
    images = [(Image.fromarray(picture(32, 32)), False), (Image.fromarray(PIXELS), True)]
    images += [(images[0][0].convert(mode), False) for mode in ("L", "CMYK")]
    for image, progressive in images:
        data = encode(image, "JPEG", progressive=progressive, **options)
        # As data_prep decodes it.
        expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        np.testing.assert_array_equal(decoded(data), expected)


@pytest.mark.parametrize("resize", RESIZES)
@pytest.mark.parametrize("size", [(32, 32), (64, 40), (7, 300), (1, 1)])
def test_an_image_is_resized_as_prediction_and_data_prep_do(size, resize):
    image = Image.fromarray(picture(size[1], size[0]))
    for kind in ("PNG", "JPEG", "GIF", "BMP"):
        data = encode(image, kind)
        expected = image_file.decode(data, resize).pixels.astype(int)
        found = decode(tf.constant(data), resize).numpy()
        assert (found.dtype, found.shape) == (np.uint8, (32, 32, 3))
        difference = np.abs(found.astype(int) - expected).max()
        assert difference <= (0 if size == (32, 32) else 1), kind


def on_canvas(width: int, height: int) -> bytes:
    """Returns a GIF with a picture of 32x32 pixels, in the corner of a canvas of another size."""
    data = bytearray(encode(Image.fromarray(PIXELS), "GIF"))
    data[6:10] = np.array([width, height], "<u2").tobytes()
    return bytes(data)


ALIKE = {
    "PNG": encode(Image.fromarray(PIXELS)),
    "grey": encode(Image.fromarray(PIXELS).convert("L")),
    "palette": encode(Image.fromarray(PIXELS).convert("P")),
    "one bit": encode(Image.fromarray(PIXELS).convert("1")),
    "alpha": encode(Image.fromarray(PIXELS).convert("RGBA")),
    "16 bits": encode(Image.fromarray(np.arange(1024, dtype=np.uint16).reshape(32, 32) * 63)),
    "grey with alpha": encode(Image.fromarray(PIXELS).convert("LA")),
    "PNG with transparency": encode(
        Image.fromarray(PIXELS).quantize(16), transparency=bytes([0, 128] + [255] * 14)
    ),
    "GIF with transparency": encode(Image.fromarray(PIXELS).quantize(16), "GIF", transparency=3),
    "GIF with too small a canvas": on_canvas(16, 20),
    "BMP with alpha": encode(Image.fromarray(PIXELS).convert("RGBA"), "BMP"),
    **{
        f"animated {kind}": encode(
            Image.fromarray(PIXELS), kind, save_all=True, append_images=[Image.new("RGB", (32, 32))]
        )
        for kind in ("GIF", "PNG")
    },
}


@pytest.mark.parametrize("name", sorted(ALIKE))
def test_an_unusual_file_gives_the_pixels_of_prediction_and_data_prep(name):
    expected = image_file.decode(ALIKE[name]).pixels
    np.testing.assert_array_equal(decoded(ALIKE[name]), expected)


@pytest.mark.parametrize(
    "data",
    [encode(Image.fromarray(PIXELS), "WEBP"), b"", b"BM", b"GIF89a", b"a text"]
    + [encode(Image.fromarray(PIXELS).convert(mode), "BMP") for mode in ("1", "L", "P")],
    ids=["WEBP", "empty", "BM", "GIF", "text", "BMP 1", "BMP L", "BMP P"],
)
def test_what_tensorflow_does_not_decode_is_refused_not_misread(data):
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(tf.constant(data))


@pytest.mark.parametrize("resize", RESIZES)
@pytest.mark.parametrize("sides", [(33, 32), (16, 300)])
def test_a_gif_whose_first_picture_does_not_fill_its_canvas_is_refused(sides, resize):
    data = on_canvas(*sides)
    with pytest.raises(tf.errors.InvalidArgumentError, match="GIF must fill its canvas"):
        decode(tf.constant(data), resize)
    with pytest.raises(tf.errors.InvalidArgumentError, match="GIF must fill its canvas"):
        tf.function(decode_batch)(tf.constant([data]), resize)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_an_export_takes_an_image_as_it_is_stored_and_prediction_turns_it(kind):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 3  # turned by 180 degrees
    data = encode(Image.fromarray(PIXELS), kind, exif=exif)
    stored = image_file.decode(encode(Image.fromarray(PIXELS), kind)).pixels
    np.testing.assert_array_equal(decoded(data), stored)
    np.testing.assert_array_equal(image_file.decode(data).pixels, stored[::-1, ::-1])


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
    assert decode_batch(tf.constant([], tf.string)).shape == (0, 32, 32, 3)


def test_the_shape_is_known_while_the_graph_is_built():
    with tf.Graph().as_default():
        batch = decode_batch(tf.placeholder(tf.string, [None]))
        assert batch.shape.as_list() == [None, 32, 32, 3]
