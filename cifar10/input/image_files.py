"""Image files: those of a folder, their reading, and their decoding in the graph of an export.

Exports make the pixels that `cifar10.image_decoding` makes. TensorFlow has no op for WEBP and for
EXIF data; its ops for BMP take a palette's numbers for grey, those for GIF leave out the canvas.
"""

import os
from typing import Any, Callable

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10 import image_decoding
from cifar10.errors import UserError
from cifar10.image_decoding import Decoded
from cifar10.schema import CHANNELS, CROP, HEIGHT, IMAGE_EXTENSIONS, PAD, STRETCH, WIDTH
from cifar10_program.paths import is_hidden, is_utf8

_MOST_BYTES = 64 << 20  # of a file


def expand(path: str, report: Callable[[str], None]) -> list[str]:
    """Returns the image files that a name stands for, sorted.

    Args:
      path: a file, which need not exist; or a folder of this machine, for all image files in it
        and in the folders inside it, linked ones included and hidden ones left out.
      report: a function that gets a line about each folder that cannot be read, and so is left
        out, and about a name with the end of a line of Windows.

    Raises:
      UserError: no image file is in the folder, although all of it could be read.
    """
    if path.endswith("\r") and not os.path.exists(path):
        hint = "the list that it is from has the line ends of Windows; tr -d '\\r' removes them"
        report(f"{path!r} cannot be read: its name ends in a carriage return; {hint}")
        return []
    if not os.path.isdir(path):
        return [path]
    found: list[str] = []
    visited: set[str] = set()
    unreadable: list[OSError] = []
    for folder, subfolders, names in os.walk(path, onerror=unreadable.append, followlinks=True):
        real = os.path.realpath(folder)
        if real in visited:  # Links may form a circle.
            subfolders.clear()
            continue
        visited.add(real)
        subfolders[:] = [name for name in subfolders if not is_hidden(name)]
        images = (name for name in names if name.lower().endswith(IMAGE_EXTENSIONS))
        found += [os.path.join(folder, name) for name in images if not is_hidden(name)]
    for error in unreadable:
        report(f"{error.filename} cannot be read: {error.strerror}")
    if not found and not unreadable:
        raise UserError(f"{path} holds no image files ({', '.join(IMAGE_EXTENSIONS)})")
    return sorted(found)


def read_image(path: str, resize: str) -> Decoded:
    """Reads and decodes an image file.

    Args:
      path: its path, any that tf.io.gfile opens.
      resize: how an image of another size is brought to 32x32, a value of `schema.RESIZES`.

    Raises:
      UserError: the file cannot be read, is no regular one, is larger than 64 MiB, is no image that
        can be used, or there is too little memory to decode it.
    """
    try:
        if not is_utf8(path):
            raise ValueError("its name is no UTF-8; rename it")
        if "://" not in path and os.path.exists(path) and not os.path.isfile(path):
            raise ValueError("only regular files are read, no pipes and no devices")
        with tf.io.gfile.GFile(path, "rb") as file:
            data = bytes(file.read(_MOST_BYTES + 1))
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it is larger than the limit for image files, {_MOST_BYTES:,} bytes")
        return image_decoding.decode(data, resize)
    except (tf.errors.OpError, ValueError, MemoryError) as error:
        reason = getattr(error, "message", str(error)) or "out of memory"
        raise UserError(f"{path} cannot be read: {reason}") from error


def decode_batch(encoded: Any, resize: str = STRETCH) -> Any:
    """Decodes image files' contents, string [N], to uint8 [N, 32, 32, 3]: see `decode`."""
    # The shape is given so that an empty batch becomes [0, 32, 32, 3].
    image = tf.TensorSpec([HEIGHT, WIDTH, CHANNELS], tf.uint8)
    return tf.map_fn(lambda content: decode(content, resize), encoded, fn_output_signature=image)


def decode(encoded: Any, resize: str = STRETCH) -> Any:
    """Decodes the content of a PNG or JPEG file to uint8 [32, 32, 3].

    The pixels of a JPEG equal those of Pillow to the last bit: both use libjpeg's exact
    transformation and smooth colours that were stored at half the resolution. TensorFlow's default
    is a faster transformation, whose pixels differ by up to 7 of 255 levels.

    An image of another size is resized with antialiasing; a level may differ by one from Pillow's.

    Args:
      encoded: the content, a string scalar.
      resize: how an image of another size is brought to 32x32, a value of `schema.RESIZES`.

    Raises:
      tf.errors.InvalidArgumentError: the content is damaged or of another format.
    """
    is_gif = tf.equal(tf.strings.substr(encoded, 0, 3), b"GIF")
    rule = "an image file must be PNG or JPEG, not GIF"
    with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(is_gif), [rule])]):
        # This op decodes PNGs, too, and refuses what is left. decode_image has no dct_method.
        image = tf.io.decode_jpeg(
            tf.identity(encoded), CHANNELS, fancy_upscaling=True, dct_method="INTEGER_ACCURATE"
        )
    return _fit(image, resize)


def _fit(image: Any, resize: str) -> Any:
    """Brings an image, uint8 [height, width, 3], to 32x32 as `image_decoding` does."""
    sides = tf.shape(image)[:2]
    inner = tf.constant([HEIGHT, WIDTH])
    if resize == CROP:
        side = tf.reduce_min(sides)
        first = (sides - side) // 2
        image = image[first[0] : first[0] + side, first[1] : first[1] + side]
    elif resize == PAD:
        wide, longer = tf.cast(sides, tf.int64), tf.cast(tf.reduce_max(sides), tf.int64)
        scaled = (2 * wide * [HEIGHT, WIDTH] + longer) // (2 * longer)
        inner = tf.cast(tf.maximum(scaled, 1), tf.int32)
    resized = tf2.image.resize(image, inner, antialias=True)
    pixels = tf.saturate_cast(tf.round(resized), tf.uint8)
    if resize == PAD:
        before = (tf.constant([HEIGHT, WIDTH]) - inner) // 2
        pixels = tf.image.pad_to_bounding_box(pixels, before[0], before[1], HEIGHT, WIDTH)
    pixels.set_shape([HEIGHT, WIDTH, CHANNELS])
    return pixels
