"""Renders `report.html`: a self-contained page that shows how training went.

The page contains its style and pictures, and makes no requests. Its pictures load matplotlib, which
takes half as long as loading TensorFlow: the first call does so, or `load`.
"""

import base64
import io
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
from PIL import Image

from cifar10.output.progress import format_duration

_HERE = Path(__file__).parent
_Z_95 = 1.959964  # the 97.5 % point of the normal distribution


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


def confusion_matrix_png(matrix: npt.NDArray[np.int64], class_names: Sequence[str]) -> bytes:
    """Draws a heat map; see `cifar10.output.report.pictures.confusion_matrix_png`."""
    from cifar10.output.report import pictures

    return pictures.confusion_matrix_png(matrix, class_names)


def render_report(result: Mapping[str, Any], mistakes: Sequence[Mistake]) -> str:
    """Renders the report of one training as a self-contained HTML page.

    Args:
      result: the content of `result.json`.
      mistakes: the misclassified images to show, in order.

    Returns:
      The page's text, to be written as UTF-8.
    """
    import jinja2

    from cifar10.output.report import pictures

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"percent": _percent, "count": _count, "picture": _picture, "png": png_of}
    environment.filters.update(filters, duration=format_duration)
    return environment.get_template("report.html.j2").render(
        result=result,
        command=shlex.join(result["command"]),
        curves=pictures.curves_png(result["history"]),
        confusion=pictures.confusion_matrix_png(
            np.asarray(result["confusion_matrix"]), result["class_names"]
        ),
        interval=_interval(result["figures"]),
        loss_broke_at=next(
            (row["step"] for row in result["history"]["train"] if not math.isfinite(row["loss"])),
            None,
        ),
        mistakes=mistakes,
    )


def _picture(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def _percent(share: Optional[float], digits: int = 2) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f}\u202f%"


def _count(value: Optional[float]) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _interval(figures: Mapping[str, Any]) -> str:
    """Returns the 95 % confidence interval of the accuracy, for example `90.7 to 91.8 %`.

    Source: the score interval of Wilson 1927, doi:10.1080/01621459.1927.10502953.
    """
    accuracy, spread = figures["eval_accuracy"], _Z_95**2 / figures["eval_examples"]
    middle = (accuracy + spread / 2) / (1 + spread)
    half = math.sqrt(accuracy * (1 - accuracy) * spread + spread**2 / 4) / (1 + spread)
    return f"{100 * (middle - half):.1f} to {_percent(middle + half, 1)}"
