"""A built-in, seeded set of 32x32 images in ten classes, for demos and tests; not CIFAR-10.

The classes are ten shapes, drawn from signed distances with random position, size, tilt, colours,
background and noise. The mean hue depends on the class, but its spread is so wide that colour alone
does not tell the classes apart.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cifar10 import schema
from data_prep.sources.dataset import Dataset, Images
from data_prep.tfrecord.write import Pixels

KIND = "synthetic"
DEFAULT_SIZE = 10_000  # Training images; there are a fifth as many for eval.
MIN_SIZE, MAX_SIZE = 20, 200_000
_VERSION = 1  # Increase it when the pictures change.

Floats = npt.NDArray[np.floating[Any]]

_HUE_SPREAD = 0.16  # Standard deviation, in turns; neighbouring classes are 0.1 turns apart.
_AT_ONCE = 500  # Pictures drawn at once; each takes some 150 kB meanwhile.
_NOISE = 0.09  # Standard deviation, as a share of the full range of pixel values.


def _farther(x: Floats, y: Floats) -> Floats:
    return np.maximum(abs(x), abs(y))


# Each class, and the signed distance of a point to its shape's outline, negative inside it.
_SHAPES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "disc": lambda x, y: np.hypot(x, y) - 0.62,
    "ring": lambda x, y: abs(np.hypot(x, y) - 0.52) - 0.15,
    "square": lambda x, y: _farther(x, y) - 0.6,
    "triangle": lambda x, y: np.maximum(abs(x) * 0.88 - y * 0.47 - 0.3, y - 0.55),
    "cross": lambda x, y: np.maximum(np.minimum(abs(x), abs(y)) - 0.19, _farther(x, y) - 0.6 - 0.1),
    "crescent": lambda x, y: np.maximum(np.hypot(x, y) - 0.66, 0.56 - np.hypot(x - 0.32, y)),
    "two-discs": lambda x, y: np.hypot(abs(x) - 0.42, y) - 0.33,
    "rows": lambda x, y: np.maximum(np.sin(y * 9.5) / 8, _farther(x, y) - 0.8),
    "columns": lambda x, y: np.maximum(np.sin(x * 9.5) / 8, _farther(x, y) - 0.8),
    "checks": lambda x, y: np.maximum(np.sin(x * 7.5) * np.sin(y * 7.5) / 8, _farther(x, y) - 0.8),
}
CLASS_NAMES = tuple(_SHAPES)


def fingerprint(size: int, seed: int) -> str:
    """Returns the SHA-256, in hex, of everything that decides the pictures."""
    return hashlib.sha256(f"synthetic {_VERSION} {size} {seed}".encode()).hexdigest()


def load(size: int, seed: int) -> Dataset:
    """Draws `size` training and max(size // 5, 10) eval images, with the classes balanced."""
    train_seed, eval_seed = np.random.SeedSequence(seed).spawn(2)
    train = _draw(size, np.random.default_rng(train_seed))
    test = _draw(max(size // 5, schema.NUM_CLASSES), np.random.default_rng(eval_seed))
    return Dataset(KIND, CLASS_NAMES, train, test)


def _draw(count: int, rng: np.random.Generator) -> Images:
    labels = rng.permutation(np.arange(count) % schema.NUM_CLASSES).astype(np.uint8)
    pixels = np.empty((count, schema.IMAGE_BYTES), np.uint8)
    for label in range(schema.NUM_CLASSES):
        rows = np.flatnonzero(labels == label)
        for first in range(0, len(rows), _AT_ONCE):
            some = rows[first : first + _AT_ONCE]
            pixels[some] = _draw_class(label, len(some), rng)
    return Images(pixels, labels)


def _draw_class(label: int, count: int, rng: np.random.Generator) -> Pixels:
    """Returns pictures of one class, uint8 [count, 3072]."""
    # The pixels' coordinates relative to the shape, x and y, float32 [count, 32, 32].
    axis = (np.arange(schema.WIDTH, dtype=np.float32) + 0.5) / schema.WIDTH * 2 - 1
    shift_x, shift_y = rng.uniform(-0.3, 0.3, (2, count, 1, 1)).astype(np.float32)
    size = rng.uniform(0.55, 1.15, (count, 1, 1)).astype(np.float32)
    tilt = rng.normal(0, 0.22, (count, 1, 1)).astype(np.float32)
    right, down = axis[None, None, :] - shift_x, axis[None, :, None] - shift_y
    x = (np.cos(tilt) * right + np.sin(tilt) * down) / size
    y = (np.cos(tilt) * down - np.sin(tilt) * right) / size
    distance = _SHAPES[CLASS_NAMES[label]](x, y)
    # The edge is soft over about half a pixel; distances are in halves of the image's width.
    mask = 1 / (1 + np.exp(np.clip(distance * 40, -30, 30)))
    mask = mask[:, None]
    hue = label / schema.NUM_CLASSES + rng.normal(0, _HUE_SPREAD, count)
    ink = _colour(hue, rng.uniform(0.35, 0.95, count), rng.uniform(0.55, 1.0, count))
    picture = _background(count, rng) * (1 - mask) + ink[:, :, None, None] * mask
    light = rng.uniform(0.75, 1.1, (count, 1, 1, 1))
    picture = picture * light + rng.normal(0, _NOISE, picture.shape)
    pixels: Pixels = (np.clip(picture, 0, 1) * 255).astype(np.uint8)
    return pixels.reshape(count, schema.IMAGE_BYTES)


def _colour(hue: Floats, saturation: Floats, value: Floats) -> Floats:
    """Converts HSV, each [count], to RGB: float32 [count, 3], from 0 to 1."""
    sector = (np.array([5.0, 3.0, 1.0]) + hue[:, None] * 6) % 6
    dip = np.clip(np.minimum(sector, 4 - sector), 0, 1)
    return np.asarray(value[:, None] * (1 - saturation[:, None] * dip), np.float32)


def _background(count: int, rng: np.random.Generator) -> Floats:
    """Returns float32 [count, 3, 32, 32]: a gradient between two dim colours of any hue."""
    ends = [
        _colour(rng.uniform(0, 1, count), rng.uniform(0, 0.6, count), rng.uniform(0.1, 0.7, count))
        for _ in range(2)
    ]
    angle = rng.uniform(0, 2 * np.pi, (count, 1, 1))
    axis = np.linspace(-1, 1, schema.WIDTH)
    slope = np.cos(angle) * axis[None, None, :] + np.sin(angle) * axis[None, :, None]
    blend = np.clip(0.5 + slope / 2, 0, 1)[:, None]
    first, second = (end[:, :, None, None] for end in ends)
    return np.asarray(first * (1 - blend) + second * blend, np.float32)
