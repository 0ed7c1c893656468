"""Writes the figures of `compare` as a table, as JSON and as a picture."""

import json
import math
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from benchmarks.errors import BenchmarkError
from benchmarks.table_text import machine_text

OURS = "train_and_evaluate"
_JSON = "compare.json"


class Row(NamedTuple):
    """One run: what was trained in which way, its images/s, and the 1-minute load before it."""

    round: int
    network: str
    batch_size: int
    precision: str
    way: str
    images_per_sec: float
    load: float


class Summary(NamedTuple):
    """The figures of one way over its rounds.

    Attributes:
      rates: median, lowest and highest images/s.
      ratios: our images/s divided by this way's in the same round: median, lowest and highest.
      rounds: number of rounds.
    """

    rates: tuple[float, float, float]
    ratios: tuple[float, float, float]
    rounds: int


Key = tuple[str, int, str, str]  # network, batch size, precision, way


def summarise(rows: Sequence[Row]) -> dict[Key, Summary]:
    """Returns the summary of each network, batch size, precision and way, in the rows' order."""
    rates: dict[Key, list[float]] = {}
    ratios: dict[Key, list[float]] = {}
    ours = {row[:4]: row.images_per_sec for row in rows if row.way == OURS}
    for row in rows:
        key = row.network, row.batch_size, row.precision, row.way
        rates.setdefault(key, []).append(row.images_per_sec)
        ratios.setdefault(key, []).append(ours[row[:4]] / row.images_per_sec)
    return {
        key: Summary(_spread(values), _spread(ratios[key]), len(values))
        for key, values in rates.items()
    }


def as_markdown(summaries: dict[Key, Summary]) -> str:
    """Returns a Markdown table with a row for each summary."""
    lines = [
        "| network | batch | precision | way | n | images/s | from, to | ours / this | from, to |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (network, batch_size, precision, way), one in summaries.items():
        median, low, high = one.rates
        ratio = "| |"
        if way != OURS:
            middle, least, most = one.ratios
            ratio = f"{middle:.2f} | {least:.2f}, {most:.2f} |"
        lines.append(
            f"| {network} | {batch_size} | {precision} | {way} | {one.rounds} | {median:,.0f} | "
            f"{low:,.0f}, {high:,.0f} | {ratio}"
        )
    return "\n".join(lines)


def conditions_text(conditions: dict[str, Any]) -> str:
    """Returns a paragraph that describes the columns, the machine and the data."""
    machine = machine_text(conditions["hardware"], conditions["versions"])
    flags = f"; {OURS} with {' '.join(conditions['flags'])}" if conditions["flags"] else ""
    return (
        "images/s of n rounds: the median, the lowest and the highest; in each round all ways, one "
        f"after the other; {machine}; data: {conditions['data']}{flags}."
    )


def read_rows(folder: pathlib.Path, conditions: dict[str, Any]) -> tuple[list[Row], dict[str, Any]]:
    """Reads the runs that an earlier call of `compare` wrote.

    Args:
      folder: the folder given to `write_report`; it may be empty.
      conditions: the present hardware, versions, data and flags of ours.

    Returns:
      The earlier runs, and the conditions of the earlier and the new runs together.

    Raises:
      BenchmarkError: the earlier runs had other conditions, or the file is not from `compare`.
    """
    path = folder / _JSON
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = [Row(**row) for row in content.pop("runs")]
        old, new = content["versions"], conditions["versions"]
        before = {"flags": [], **content, "versions": {**new, **old}}
        now = {**conditions, "versions": {**old, **new}}
    except FileNotFoundError:
        return [], conditions
    except (ValueError, TypeError, KeyError):
        raise BenchmarkError(f"{path} is not what compare writes; choose another --out") from None
    for name, value in now.items():
        if before.get(name) != value:
            raise BenchmarkError(
                f"{path} was measured with {name} {before.get(name)}, and here is {value}; choose "
                "another --out"
            )
    return rows, now


def rounds_of(rows: Sequence[Row]) -> dict[tuple[str, int, str], int]:
    """Returns the number of rounds measured for each network, batch size and precision."""
    return {key[:3]: one.rounds for key, one in summarise(rows).items() if key[3] == OURS}


def write_report(folder: pathlib.Path, rows: Sequence[Row], conditions: dict[str, Any]) -> str:
    """Writes compare.json, compare.md and compare.png; returns the text of compare.md."""
    summaries = summarise(rows)
    text = f"{conditions_text(conditions)}\n\n{as_markdown(summaries)}\n"
    content = {**conditions, "runs": [row._asdict() for row in rows]}
    (folder / _JSON).write_text(json.dumps(content, indent=1), encoding="utf-8")
    (folder / "compare.md").write_text(text, encoding="utf-8")
    draw(summaries).savefig(folder / "compare.png", dpi=150)
    return text


def draw(summaries: dict[Key, Summary]) -> Figure:
    """Draws the medians as bars with whiskers from lowest to highest, a panel per precision."""
    networks = list(dict.fromkeys(key[:2] for key in summaries))
    precisions = list(dict.fromkeys(key[2] for key in summaries))
    ways = list(dict.fromkeys(key[3] for key in summaries))
    rates = {key: one.rates for key, one in summaries.items()}
    figure = Figure(figsize=(4.6 * len(precisions), 3.4), layout="constrained")
    for axes, precision in zip(figure.subplots(1, len(precisions), squeeze=False)[0], precisions):
        for place, way in enumerate(ways):
            shift = (place - (len(ways) - 1) / 2) * 0.8 / len(ways)
            nothing = (math.nan, math.nan, math.nan)
            middle, low, high = zip(
                *(rates.get((*network, precision, way), nothing) for network in networks)
            )
            down = [one - least for one, least in zip(middle, low)]
            up = [most - one for one, most in zip(middle, high)]
            axes.bar(
                [index + shift for index in range(len(networks))],
                middle,
                0.8 / len(ways),
                yerr=(down, up),
                label=way,
                error_kw={"linewidth": 0.8},
            )
        labels = [f"{network}\nbatch {batch_size}" for network, batch_size in networks]
        axes.set_xticks(range(len(networks)), labels)
        axes.set_title(precision, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", linewidth=0.4)
        axes.set_axisbelow(True)
    figure.axes[0].set_ylabel("images/s")
    figure.axes[-1].legend(fontsize=8, frameon=False)
    return figure


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(values), min(values), max(values)
