"""The figures of `compare` as a table, as JSON and as a picture."""

import json
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

OURS = "train_and_evaluate"


class Row(NamedTuple):
    """One run: images/s, and the machine's load in the minute before."""

    round: int
    network: str
    precision: str
    way: str
    images_per_sec: float
    load: float


class Summary(NamedTuple):
    """What a way's rounds come to.

    Attributes:
      rates: median, lowest and highest images/s.
      ratios: ours divided by this way's of the same round: median, lowest, highest.
      rounds: how many there were.
    """

    rates: tuple[float, float, float]
    ratios: tuple[float, float, float]
    rounds: int


Key = tuple[str, str, str]  # network, precision, way


def summarise(rows: Sequence[Row]) -> dict[Key, Summary]:
    """Medians and extremes of each way, in the order in which they came."""
    rates: dict[Key, list[float]] = {}
    ratios: dict[Key, list[float]] = {}
    ours = {
        (row.round, row.network, row.precision): row.images_per_sec
        for row in rows
        if row.way == OURS
    }
    for row in rows:
        key = row.network, row.precision, row.way
        rates.setdefault(key, []).append(row.images_per_sec)
        own = ours[row.round, row.network, row.precision]
        ratios.setdefault(key, []).append(own / row.images_per_sec)
    return {
        key: Summary(_spread(values), _spread(ratios[key]), len(values))
        for key, values in rates.items()
    }


def as_markdown(summaries: dict[Key, Summary]) -> str:
    """A table of all ways."""
    lines = [
        "| network | precision | way | images/s | lowest, highest | ours / this | of rounds |",
        "|---|---|---|---|---|---|---|",
    ]
    for (network, precision, way), one in summaries.items():
        median, low, high = one.rates
        ratio = "| |"
        if way != OURS:
            middle, least, most = one.ratios
            ratio = f"{middle:.2f} | {least:.2f}, {most:.2f} |"
        lines.append(
            f"| {network} | {precision} | {way} | {median:,.1f} | {low:,.1f}, {high:,.1f} | {ratio}"
        )
    return "\n".join(lines)


def conditions_text(conditions: dict[str, Any], rounds: int) -> str:
    """One paragraph: what it was measured on."""
    machine, versions = conditions["hardware"], dict(conditions["versions"])
    python = versions.pop("python")
    used = ", ".join(
        f"{name} {versions[name]}" for name in ("tensorflow", "torch") if name in versions
    )
    return (
        f"images/s, batch {conditions['batch_size']}; n={rounds}, in each every way, one after "
        f"the other; {machine['cores']} cores of {machine['cpu']}; Python {python}, {used}; "
        f"data: {conditions['data']}."
    )


def write_report(folder: pathlib.Path, rows: Sequence[Row], conditions: dict[str, Any]) -> str:
    """Writes compare.json, compare.md and compare.png; returns the text of compare.md."""
    summaries = summarise(rows)
    rounds = max(one.rounds for one in summaries.values())
    text = f"{conditions_text(conditions, rounds)}\n\n{as_markdown(summaries)}\n"
    content = {**conditions, "runs": [row._asdict() for row in rows]}
    (folder / "compare.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    (folder / "compare.md").write_text(text, encoding="utf-8")
    draw(summaries).savefig(folder / "compare.png", dpi=150)
    return text


def draw(summaries: dict[Key, Summary]) -> Figure:
    """Bars of medians, a panel a precision; whiskers from the lowest to the highest."""
    precisions = list(dict.fromkeys(key[1] for key in summaries))
    networks = list(dict.fromkeys(key[0] for key in summaries))
    ways = list(dict.fromkeys(key[2] for key in summaries))
    figure = Figure(figsize=(4.6 * len(precisions), 3.4), layout="constrained")
    for axes, precision in zip(figure.subplots(1, len(precisions), squeeze=False)[0], precisions):
        for place, way in enumerate(ways):
            found = [summaries[network, precision, way].rates for network in networks]
            middle, low, high = (list(column) for column in zip(*found))
            down = [one - least for one, least in zip(middle, low)]
            up = [most - one for one, most in zip(middle, high)]
            shift = (place - (len(ways) - 1) / 2) * 0.8 / len(ways)
            axes.bar(
                [index + shift for index in range(len(networks))],
                middle,
                0.8 / len(ways),
                yerr=(down, up),
                label=way,
                error_kw={"linewidth": 0.8},
            )
        axes.set_xticks(range(len(networks)), networks)
        axes.set_title(precision, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", linewidth=0.4)
        axes.set_axisbelow(True)
    figure.axes[0].set_ylabel("images/s")
    figure.axes[-1].legend(fontsize=8, frameon=False)
    return figure


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(values), min(values), max(values)
