"""Puts the page together: result and mistakes in, HTML out."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cifar10.output.report import numbers
from cifar10.output.report.charts import Chart, Series, draw_chart, series_of
from cifar10.output.report.confusion import (
    class_accuracies,
    confusion_matrix_png,
    most_confused,
)
from cifar10.output.report.mistakes import Mistake, data_uri, png_of, worst
from cifar10.output.report.themes import DARK, LIGHT

_HERE = Path(__file__).parent
# What the template reads of each part; what the result lacks becomes None.
_RESULT = (
    *("status", "model", "command", "finished_at", "figures", "configuration", "versions"),
    *("hardware", "data", "class_names", "confusion_matrix", "history"),
)
_FIGURES = (
    *("eval_accuracy", "eval_accuracy_augmented", "eval_loss", "eval_examples"),
    *("best_validation_accuracy", "best_validation_step"),
    *("global_step", "epochs", "examples_seen", "training_seconds", "wall_seconds"),
    *("images_per_sec", "num_parameters"),
)
_DATA = ("source", "seed", "splits", "channel_mean", "channel_deviation")
_SOURCE = ("kind", "name", "fingerprint")
_HARDWARE = ("cpu", "cores", "memory_gib", "gpus")


def render_report(result: Mapping[str, Any], mistakes: Sequence[Mistake]) -> str:
    """Renders the report of one training as a self-contained HTML page.

    Args:
      result: what `result.json` holds; figures may be None or not finite, parts may be missing.
      mistakes: misjudged images in any order; the 36 most confident ones are shown.

    Returns:
      The page's text, to be written as UTF-8.
    """
    result = _filled(_RESULT, result)
    data = _filled(_DATA, result["data"])
    history = result["history"] or {}
    template = _environment().get_template("report.html.j2")
    return template.render(
        result=result,
        figures=_filled(_FIGURES, result["figures"]),
        data=data,
        source=_filled(_SOURCE, data["source"]),
        hardware=_filled(_HARDWARE, result["hardware"]),
        command=shlex.join(str(word) for word in result["command"] or ()),
        charts=_charts(history),
        loss_broke_at=_first_broken_loss(history),
        confusion=_confusion(result),
        mistakes=[_mistake(mistake, result["class_names"]) for mistake in worst(mistakes)],
    )


def _filled(keys: Sequence[str], part: Optional[Mapping[str, Any]]) -> dict[str, Any]:
    return {**dict.fromkeys(keys), **(part or {})}


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=numbers.percent,
        probability=numbers.probability,
        fixed=numbers.fixed,
        count=numbers.count,
        duration=numbers.duration,
        size=numbers.size,
        day_and_time=numbers.day_and_time,
        setting=numbers.setting,
    )
    environment.globals["accuracy_interval"] = numbers.accuracy_interval
    # Ours, not the result's: the only text of the page that is not escaped.
    environment.globals["style"] = Markup((_HERE / "report.css").read_text(encoding="utf-8"))
    return environment


def _charts(history: Mapping[str, Any]) -> list[dict[str, Any]]:
    train, validation = history.get("train") or (), history.get("validation") or ()

    def both(key: str) -> list[Series]:
        return [series_of("train", train, key), series_of("validation", validation, key)]

    loss = draw_chart("Loss", both("loss"))
    accuracy = draw_chart("Accuracy", both("accuracy"), share=True)
    rate = draw_chart("Learning rate", both("learning_rate"), from_zero=True)
    speed = draw_chart("Images per second", both("images_per_sec"), from_zero=True)
    return [
        _chart(loss, numbers.fixed),
        _chart(accuracy, numbers.percent),
        _chart(rate, numbers.fixed),
        _chart(speed, numbers.count),
    ]


def _chart(chart: Chart, written: Callable[[float], str]) -> dict[str, Any]:
    curves = "; ".join(
        f"{curve.name} from {written(curve.first)} to {written(curve.last)}"
        for curve in chart.series
    )
    return {
        "title": chart.title,
        "light": chart.light and data_uri(chart.light, "svg+xml"),
        "dark": chart.dark and data_uri(chart.dark, "svg+xml"),
        "series": [{"name": curve.name, "last": written(curve.last)} for curve in chart.series],
        "description": f"{chart.title} against epochs: {curves}",
    }


def _first_broken_loss(history: Mapping[str, Any]) -> Any:
    """Returns the step of the first training loss that is not finite, None if all are."""
    for row in history.get("train") or ():
        if row.get("loss") is not None and not math.isfinite(row["loss"]):
            return row.get("step")
    return None


def _confusion(result: Mapping[str, Any]) -> Any:
    if not result["confusion_matrix"]:
        return None
    matrix, names = np.asarray(result["confusion_matrix"]), result["class_names"]
    return {
        "names": names,
        "rows": list(zip(names, matrix.tolist(), class_accuracies(matrix))),
        "pairs": most_confused(matrix, names),
        "light": data_uri(confusion_matrix_png(matrix, names, LIGHT)),
        "dark": data_uri(confusion_matrix_png(matrix, names, DARK)),
    }


def _mistake(mistake: Mistake, class_names: Sequence[str]) -> dict[str, Any]:
    return {
        "index": mistake.index,
        "picture": data_uri(png_of(mistake.image)),
        "label": class_names[mistake.label],
        "predicted": class_names[mistake.predicted],
        "probability": mistake.probability,
        "label_probability": mistake.label_probability,
    }
