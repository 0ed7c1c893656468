"""Renders the report from the result and the misclassified images."""

import base64
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cifar10.output.report import numbers
from cifar10.output.report.mistakes import Mistake, png_of
from cifar10.output.report.pictures import column, draw_chart

_HERE = Path(__file__).parent
_MAX_PAIRS = 6


def render_report(result: Mapping[str, Any], mistakes: Sequence[Mistake]) -> str:
    """Renders the report of one training as a self-contained HTML page.

    Args:
      result: the content of `result.json`.
      mistakes: the misclassified images to show, in order.

    Returns:
      The page's text, to be written as UTF-8.
    """
    history, names = result["history"], result["class_names"]
    matrix = np.asarray(result["confusion_matrix"])
    accuracies = [row[label] / row.sum() if row.sum() else None for label, row in enumerate(matrix)]
    confused = [
        {"label": names[label], "predicted": names[predicted], "count": matrix[label, predicted]}
        for label, predicted in np.argwhere(matrix > 0)
        if label != predicted
    ]
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            result=result,
            command=shlex.join(result["command"]),
            charts=[
                _chart("Loss", "loss", history, numbers.fixed),
                _chart("Accuracy", "accuracy", history, numbers.percent, share=True),
                _chart("Learning rate", "learning_rate", history, numbers.fixed, from_zero=True),
                _chart(
                    "Images per second", "images_per_sec", history, numbers.count, from_zero=True
                ),
            ],
            loss_broke_at=next(
                (row["step"] for row in history["train"] if not math.isfinite(row["loss"])), None
            ),
            class_rows=list(zip(names, matrix.tolist(), accuracies)),
            confused_pairs=sorted(confused, key=lambda pair: -pair["count"])[:_MAX_PAIRS],
            mistakes=mistakes,
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({function.__name__: function for function in numbers.FILTERS})
    environment.filters["heat"] = _heat
    environment.filters["picture"] = lambda image: _data_uri(png_of(image), "png")
    environment.globals["accuracy_interval"] = numbers.accuracy_interval
    # The style sheet is part of this package and the only text of the page that is not escaped.
    environment.globals["style"] = Markup((_HERE / "report.css").read_text(encoding="utf-8"))
    return environment


def _heat(images: int, row: Sequence[int]) -> int:
    """Returns how strongly a cell of the matrix is coloured, 0 to 100, by its share of its row.

    Mistakes are a few per cent of a row; the square root makes them visible.
    """
    return round(100 * math.sqrt(images / max(sum(row), 1)))


def _data_uri(picture: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode('ascii')}"


def _chart(
    title: str,
    key: str,
    history: Mapping[str, Any],
    written: Callable[[float], str],
    **axis: bool,
) -> dict[str, Any]:
    """Returns a chart for the template: the column `key` of both splits against epochs."""
    curves, ends = {}, {}
    for split in ("train", "validation"):
        epochs, values = column(history[split], "epoch"), column(history[split], key)
        finite = values[np.isfinite(values)]
        if finite.size:
            curves[split] = (epochs, values)
            ends[split] = written(float(finite[0])), written(float(finite[-1]))
    words = "; ".join(f"{name} from {first} to {last}" for name, (first, last) in ends.items())
    drawn = draw_chart(curves, **axis) if curves else ()
    return {
        "title": title,
        "pictures": [_data_uri(svg, "svg+xml") for svg in drawn],
        "last": {name: last for name, (_, last) in ends.items()},
        "description": f"{title} against epochs: {words}",
    }
