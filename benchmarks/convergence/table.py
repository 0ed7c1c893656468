"""Shows the committed curves as a table: the figures at their end, and the machine."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.convergence.curve import Curve
from benchmarks.errors import BenchmarkError
from benchmarks.table_text import as_markdown, machine_text

_COLUMNS = (
    ("images", "{images}"),
    ("case", "{case}"),
    ("precision, kernels", "{precision}, {kernels}"),
    ("n", "{n}"),
    ("steps x images", "{steps:,} x {batch_size:,}"),
    ("training loss", "{loss[0]:.3f} ({loss[1]:.3f} to {loss[2]:.3f})"),
    ("validation accuracy", "{validation[0]:.3f} ({validation[1]:.3f} to {validation[2]:.3f})"),
)
_CONDITIONS = ("machine", "day")  # of the measurement


def curves_table(folder: Path) -> str:
    """Returns a Markdown table with the figures at the end of each curve.

    A figure is the mean over the seeds, with the lowest and the highest. The machine and the day of
    measurement each stand below the table if they are the same for all curves, else in each row.

    Raises:
      BenchmarkError: the folder has no curves.
    """
    curves = [Curve.load(path) for path in sorted(folder.glob("*/*.json"))]
    if not curves:
        raise BenchmarkError(f"{folder} has no curves; python -m benchmarks converge --write")
    rows = [_row(curve) for curve in curves]
    shared = [name for name in _CONDITIONS if len({row[name] for row in rows}) == 1]
    own = [(name, f"{{{name}}}") for name in _CONDITIONS if name not in shared]
    table = as_markdown((*_COLUMNS, *own), rows)
    if not shared:
        return table
    return f"{table}\n\nMeasured on {'; '.join(rows[0][name] for name in shared)}."


def _row(curve: Curve) -> dict[str, Any]:
    seeds = list(curve.seeds.values())
    machine = machine_text(curve.conditions["hardware"], curve.conditions["versions"])
    return {
        "images": curve.images,
        "case": curve.case,
        "precision": curve.precision,
        "kernels": curve.conditions["kernels"],
        "n": len(seeds),
        "steps": curve.steps[-1],
        "batch_size": curve.batch_size,
        "loss": _spread([one.loss[-1] for one in seeds]),
        "validation": _spread([one.validation_accuracy for one in seeds]),
        "machine": machine,
        "day": curve.conditions["measured"],
    }


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.fmean(values), min(values), max(values)
