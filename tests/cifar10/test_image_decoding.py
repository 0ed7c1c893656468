"""Image files become the pixels of records, whoever wrote them, or are refused in a line."""

import struct
import zlib
from typing import Any, Optional

import numpy as np
import pytest
from PIL import Image

from cifar10.image_decoding import ImageFileError, ImageSizeError, decode
from tests.data_prep.made import encode

PIXELS = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
LOSSLESS: dict[str, dict[str, Any]] = {"PNG": {}, "BMP": {}, "WEBP": {"lossless": True}}

# Where the top left corner, as it is stored, is in the upright image, by EXIF's orientation.
CORNERS = [(2, 2), (2, 29), (29, 29), (29, 2), (2, 2), (2, 29), (29, 29), (29, 2)]


def halves(width: int, height: int) -> Image.Image:
    """An image whose left half is red, and whose right half is blue."""
    image = Image.new("RGB", (width, height), "red")
    image.paste("blue", (width // 2, 0, width, height))
    return image


def refusal(data: bytes, resize: Optional[str] = "stretch") -> str:
    with pytest.raises(ImageFileError) as refused:
        decode(data, resize)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("kind", LOSSLESS)
def test_a_lossless_image_of_32x32_pixels_is_taken_as_it_is(kind: str) -> None:
    decoded = decode(encode(Image.fromarray(PIXELS), kind, **LOSSLESS[kind]))
    np.testing.assert_array_equal(decoded.pixels, PIXELS)
    assert decoded.size == (32, 32)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_only_the_first_picture_of_an_animation_counts(kind: str) -> None:
    options = {**LOSSLESS.get(kind, {}), "save_all": True}
    more = [Image.new("RGB", (40, 40), "blue")]
    data = encode(Image.new("RGB", (40, 40), "red"), kind, append_images=more, **options)
    assert (decode(data, "stretch").pixels == [255, 0, 0]).all()


def test_an_image_of_another_size_is_refused_unless_it_is_resized() -> None:
    data = encode(halves(64, 40))
    with pytest.raises(ImageSizeError, match="images must be 32x32 pixels, this is 64x40"):
        decode(data)
    decoded = decode(data, "crop")
    assert decoded.size == (64, 40)


def test_crop_takes_the_middle_square_pad_adds_black_bars_and_stretch_shows_all() -> None:
    image = Image.new("RGB", (96, 32), "white")
    image.paste(Image.fromarray(PIXELS), (32, 0))
    np.testing.assert_array_equal(decode(encode(image), "crop").pixels, PIXELS)
    pixels = decode(encode(Image.new("RGB", (128, 64), "white")), "pad").pixels
    assert (pixels[8:24] == 255).all()
    assert (pixels[:8] == 0).all()
    assert (pixels[24:] == 0).all()
    pixels = decode(encode(halves(320, 64)), "stretch").pixels
    assert (pixels[:, :15] == [255, 0, 0]).all()
    assert (pixels[:, 17:] == [0, 0, 255]).all()


@pytest.mark.parametrize(
    ("kind", "orientation", "corner"),
    [
        *(("JPEG", 1 + number, corner) for number, corner in enumerate(CORNERS)),
        ("PNG", 6, (2, 29)),
        ("WEBP", 6, (2, 29)),
    ],
)
def test_a_photograph_is_turned_as_its_exif_data_says(
    kind: str, orientation: int, corner: tuple[int, int]
) -> None:
    image = Image.new("RGB", (64, 32), "black")
    image.paste("white", (0, 0, 16, 8))  # the top left corner as it is stored
    exif = Image.Exif()
    exif[0x0112] = orientation
    decoded = decode(encode(image, kind, exif=exif), "stretch")
    assert decoded.size == ((64, 32) if orientation < 5 else (32, 64))
    bright = [found for found in sorted(set(CORNERS)) if decoded.pixels[found].min() > 200]
    assert bright == [corner]


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0II*\0\xff\xff\xff\x7f", b"Exif\0\0MM\0*\0\0\0\x08\0\xff"]
)
def test_exif_data_that_cannot_be_read_is_ignored(exif: bytes) -> None:
    data = encode(Image.new("RGB", (32, 32), "white"), "JPEG", exif=exif)
    assert (decode(data).pixels == 255).all()


def test_a_palettes_transparency_is_left_out_but_black_in_a_gif() -> None:
    image = Image.new("P", (32, 32), 0)
    image.putpalette([200, 100, 50, 0, 0, 0])
    assert (decode(encode(image, transparency=bytes([7, 255]))).pixels == [200, 100, 50]).all()
    assert (decode(encode(image, "GIF", transparency=0)).pixels == 0).all()
    assert (decode(encode(image, "GIF", transparency=1)).pixels == [200, 100, 50]).all()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_a_file_that_is_cut_or_empty_is_refused(kind: str) -> None:
    data = encode(Image.fromarray(PIXELS), kind)
    for part in (b"", data[:6], data[:20], data[: len(data) // 2]):
        assert refusal(part).startswith("not a sound PNG, JPEG, WEBP, GIF or BMP image: ")
    assert refusal(encode(Image.fromarray(PIXELS), "TIFF")).startswith(
        "not a sound PNG, JPEG, WEBP"
    )


def header(kind: str, width: int, height: int) -> bytes:
    """A small file that claims a size."""
    if kind == "GIF":
        small = encode(Image.new("L", (8, 8)), "GIF")
        return small[:6] + struct.pack("<HH", width, height) + small[10:]
    content = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [b"\x89PNG\r\n\x1a\n"]
    for name, data in ((b"IHDR", content), (b"IDAT", b""), (b"IEND", b"")):
        parts += [struct.pack(">I", len(data)), name, data]
        parts += [struct.pack(">I", zlib.crc32(name + data))]
    return b"".join(parts)


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_an_image_that_would_fill_the_memory_is_refused_by_its_header(kind: str) -> None:
    limit = "the limit is 50,000,000; make it smaller, such as by `convert IN -resize 25% OUT`"
    assert refusal(header(kind, 10_000, 5_001)) == f"has 10000x5001 pixels, {limit}"
    # Beyond 89 million, and twice that, the library has limits of its own.
    for side in (9_500, 16_383):
        assert refusal(header(kind, side, side)) == f"has {side * side} pixels, {limit}"


def test_a_long_side_is_refused_though_its_pixels_are_few() -> None:
    message = refusal(header("PNG", 1, 65_536))
    assert message == "has 1x65536 pixels, the limit of a side is 65,535"
    assert decode(encode(Image.new("1", (65_535, 1), 1)), "stretch").pixels.min() == 255
