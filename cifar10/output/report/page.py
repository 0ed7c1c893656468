"""Renders the report from the result and the misclassified images."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cifar10.output.report import numbers
from cifar10.output.report.charts import draw_chart, series_of
from cifar10.output.report.confusion import class_accuracies, heat, most_confused
from cifar10.output.report.mistakes import Mistake, data_uri, png_of
from cifar10.output.report.themes import in_dark

_HERE = Path(__file__).parent


def render_report(result: Mapping[str, Any], mistakes: Sequence[Mistake]) -> str:
    """Renders the report of one training as a self-contained HTML page.

    Args:
      result: the content of `result.json`.
      mistakes: the misclassified images to show, in order.

    Returns:
      The page's text, to be written as UTF-8.
    """
    history, matrix = result["history"], np.asarray(result["confusion_matrix"])
    names = result["class_names"]
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
            class_rows=list(zip(names, matrix.tolist(), class_accuracies(matrix))),
            confused_pairs=most_confused(matrix, names),
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
    environment.filters["heat"] = heat
    environment.filters["picture"] = lambda image: data_uri(png_of(image))
    environment.globals["accuracy_interval"] = numbers.accuracy_interval
    # The style sheet is part of this package and the only text of the page that is not escaped.
    environment.globals["style"] = Markup((_HERE / "report.css").read_text(encoding="utf-8"))
    return environment


def _chart(
    title: str,
    key: str,
    history: Mapping[str, Any],
    written: Callable[[float], str],
    **axis: bool,
) -> dict[str, Any]:
    """Returns a chart for the template: the column `key` of both splits against epochs."""
    curves = [series_of(split, history[split], key) for split in ("train", "validation")]
    curves = [curve for curve in curves if np.isfinite(curve.values).any()]
    ends = {curve.name: [written(end) for end in curve.ends] for curve in curves}
    words = "; ".join(f"{name} from {first} to {last}" for name, (first, last) in ends.items())
    light = draw_chart(curves, **axis) if curves else None
    return {
        "title": title,
        "pictures": [data_uri(svg, "svg+xml") for svg in (light, in_dark(light))] if light else [],
        "last": {name: last for name, (_, last) in ends.items()},
        "description": f"{title} against epochs: {words}",
    }
