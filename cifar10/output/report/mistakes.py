"""The images that the network got wrong with the most conviction."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

MAX_SHOWN = 36


@dataclass(frozen=True, eq=False)
class Mistake:
    """One misjudged image.

    Attributes:
      index: which record of the evaluation split it is, from 0.
      image: uint8 [32, 32, 3].
      label: its true class.
      predicted: the class it was taken for.
      probability: what the network gave to the predicted class.
      label_probability: what it gave to the true one.
    """

    index: int
    image: npt.NDArray[np.uint8]
    label: int
    predicted: int
    probability: float
    label_probability: float


def worst(mistakes: Sequence[Mistake]) -> list[Mistake]:
    """Returns at most 36 mistakes, the most confident first."""
    return sorted(mistakes, key=lambda mistake: -mistake.probability)[:MAX_SHOWN]


def png_of(image: npt.NDArray[np.uint8]) -> bytes:
    """Encodes uint8 [height, width, 3] as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image, dtype=np.uint8)).save(
        buffer, format="PNG", optimize=True
    )
    return buffer.getvalue()


def data_uri(picture: bytes, kind: str = "png") -> str:
    """Returns a picture, `png` or `svg+xml`, as the text that an `img` element holds in itself."""
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode('ascii')}"
