"""The content of an image file → the pixels of a record, the same for data_prep and prediction.

Pillow decodes, and its limits and ours apply before pixels are in memory. Only the first picture of
an animation is decoded. An EXIF orientation, as cameras write it, is carried out. An alpha channel
and a palette's transparency are left out; transparent pixels of a GIF are black. Of 16 bits per
channel, the 8 high ones remain.
"""

import contextlib
import io
import re
import warnings
from typing import NamedTuple, Optional

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from cifar10.schema import CROP, HEIGHT, PAD, WIDTH

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
NAMES = "PNG, JPEG, WEBP, GIF or BMP"
# Up to 16 bytes each: four as decoded, as converted to RGB, as turned, and in the decoder of WEBP.
MAX_PIXELS = 50_000_000
_LIMIT = f"the limit is {MAX_PIXELS:,}; make it smaller, such as by `convert IN -resize 25% OUT`"
# That of JPEG and GIF. A PNG of one column and 50,000,000 rows would take minutes.
MAX_SIDE = 65_535

# Modes with at most 8 bits per channel, which convert to RGB without loss of range.
_MODES = ("RGB", "RGBA", "L", "LA", "P", "PA", "1", "CMYK", "YCbCr")
_GREY_16 = "I;16"


class ImageFileError(ValueError):
    """A file is no image that can be used; the message is one line, without the file's name."""


class ImageSizeError(ImageFileError):
    """An image is sound but of another size than 32x32, and is not to be resized."""


class Decoded(NamedTuple):
    """A decoded image.

    Attributes:
      pixels: uint8 [32, 32, 3].
      size: its width and height before it was resized, in pixels.
    """

    pixels: npt.NDArray[np.uint8]
    size: tuple[int, int]


def decode(data: bytes, resize: Optional[str] = None) -> Decoded:
    """Decodes the content of an image file to RGB.

    Args:
      data: the content, in one of `FORMATS`.
      resize: how an image of another size is brought to 32x32, a value of `schema.RESIZES`; None:
        it is refused.

    Raises:
      ImageSizeError: the image has another size, and `resize` is None.
      ImageFileError: the content is no sound image of these formats, has too many pixels or too
        long a side, or more than 16 bits per channel.
      MemoryError: there is too little memory to decode it.
    """
    try:
        with warnings.catch_warnings():
            # Other warnings are about EXIF data or further pictures, which cameras often damage.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            # Only the header is read here; the pixels are decoded after the size has been checked.
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                _check_size(image.size, resize)
                image.load()
                upright = _rgb(image)
                # EXIF data that cannot be read says nothing: many programs damage it, and leave
                # the image whole. Many types again.
                with contextlib.suppress(Exception):
                    upright = ImageOps.exif_transpose(upright)
                return Decoded(np.asarray(_fit(upright, resize)), upright.size)
    except (ImageFileError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        pixels = "".join(re.findall(r"\((\d+) pixels\)", str(error)))
        raise ImageFileError(f"has {pixels} pixels, {_LIMIT}") from error
    except Exception as error:  # Pillow's decoders raise many types on damaged files.
        reason = " ".join(str(error).split("<")[0].split()) or type(error).__name__
        raise ImageFileError(f"not a sound {NAMES} image: {reason}") from error


def png_of(image: npt.NDArray[np.uint8]) -> bytes:
    """Encodes uint8 [height, width, 3] as PNG."""
    buffer = io.BytesIO()
    # Without `optimize`, which takes ten times as long for one per cent of the bytes.
    Image.fromarray(np.ascontiguousarray(image, dtype=np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()


def _check_size(size: tuple[int, int], resize: Optional[str]) -> None:
    width, height = size
    if resize is None and size != (WIDTH, HEIGHT):
        raise ImageSizeError(f"images must be {WIDTH}x{HEIGHT} pixels, this is {width}x{height}")
    if width * height > MAX_PIXELS:
        raise ImageFileError(f"has {width}x{height} pixels, {_LIMIT}")
    if max(size) > MAX_SIDE:
        raise ImageFileError(f"has {width}x{height} pixels, the limit of a side is {MAX_SIDE:,}")


def _rgb(image: Image.Image) -> Image.Image:
    """Converts a loaded image to RGB.

    Raises:
      ImageFileError: it has more than 16 bits per channel.
    """
    if image.mode == _GREY_16:
        high: npt.NDArray[np.uint8] = (np.asarray(image) >> 8).astype(np.uint8)
        return Image.fromarray(high).convert("RGB")
    if image.mode not in _MODES:
        rule = "images must have 8 or 16 bits per channel"
        raise ImageFileError(f"{rule}, this has mode {image.mode}")
    if image.mode == "P":
        # Pillow warns of transparency that a palette loses, unless it is an alpha channel first.
        rgba = image.convert("RGBA")
        if image.format == "GIF" and "transparency" in image.info:  # as TensorFlow's op has them
            rgba = Image.alpha_composite(Image.new("RGBA", rgba.size, "black"), rgba)
        return rgba.convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _fit(image: Image.Image, resize: Optional[str]) -> Image.Image:
    """Brings an RGB image to 32x32, with antialiasing where it becomes smaller.

    `input.image_files` does the same in the graph of an export.
    """
    width, height = image.size
    if (width, height) == (WIDTH, HEIGHT):
        return image
    inner = (WIDTH, HEIGHT)
    if resize == CROP:
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        image = image.crop((left, top, left + side, top + side))
    elif resize == PAD:
        longer = max(width, height)
        inner = (_scaled(width, WIDTH, longer), _scaled(height, HEIGHT, longer))
    resized = image.resize(inner, Image.Resampling.BILINEAR)
    canvas = Image.new("RGB", (WIDTH, HEIGHT))
    canvas.paste(resized, ((WIDTH - inner[0]) // 2, (HEIGHT - inner[1]) // 2))
    return canvas


def _scaled(side: int, target: int, longer: int) -> int:
    """Returns the length of a side after the longer one has become `target` pixels."""
    return max(1, (2 * side * target + longer) // (2 * longer))
