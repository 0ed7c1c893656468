"""Misclassified images, and their encoding; matplotlib is not loaded for them."""

import io
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image


@dataclass(frozen=True, eq=False)
class Mistake:
    """One misclassified image.

    Attributes:
      index: index of the record in the eval split, from 0.
      image: uint8 [32, 32, 3].
      label: index of the true class.
      predicted: index of the predicted class.
      probability: probability that the network gave the predicted class.
      label_probability: probability that the network gave the true class.
    """

    index: int
    image: npt.NDArray[np.uint8]
    label: int
    predicted: int
    probability: float
    label_probability: float


def png_of(image: npt.NDArray[np.uint8]) -> bytes:
    """Encodes uint8 [height, width, 3] as PNG."""
    buffer = io.BytesIO()
    # Without `optimize`, which takes ten times as long for one per cent of the bytes.
    Image.fromarray(np.ascontiguousarray(image, dtype=np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()
