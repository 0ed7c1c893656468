"""Reports how well the model of a step predicts real runs: a line for each, and a table."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table

from benchmarks.scaling.measured_run import Figures
from benchmarks.scaling.step_model import Constants, Link, Shape, images_per_sec


class Result(NamedTuple):
    """A real run, and the constants of the model that predicts it."""

    constants: Constants
    shape: Shape
    link: Link
    figures: Figures

    @property
    def predicted(self) -> float:
        """The images/s that the model predicts."""
        return images_per_sec(self.constants, self.shape, self.link)


def line_of(result: Result) -> str:
    """Returns a result as a line of JSON: the cells of the table, and what explains them."""
    constants, figures, shape = result.constants, result.figures, result.shape
    server_secs = figures.server_cores * figures.step_secs / shape.trainers
    trainer_cores = figures.busy_cores - figures.server_cores
    more = {
        "ms alone": 1000 * constants.compute_secs,
        "deviation %": 100 * constants.jitter,
        "server CPU ms a step": 1000 * server_secs,
        "trainer CPU ms a step": 1000 * trainer_cores * figures.step_secs / shape.trainers,
        "MB a step": figures.sent_bytes * figures.step_secs / shape.trainers / 1e6,
        "staleness": figures.staleness,
    }
    return json.dumps({**_cells(result), **{name: f"{one:.2f}" for name, one in more.items()}})


def table_of(results: Sequence[Result]) -> Table:
    """Returns a table with a row for each result, in the order given."""
    table = Table("link", "delay", "trainers", "ps", "updates", title="images/s")
    for name in ("predicted", "measured", "predicted / measured"):
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(*_cells(result).values())
    return table


def _cells(result: Result) -> dict[str, str]:
    link, shape, measured = result.link, result.shape, result.figures.images_per_sec
    return {
        "link": f"{link.bytes_per_sec * 8e-6:,.0f} Mbit/s",
        "delay": f"{500 * link.round_trip_secs:g} ms",
        "trainers": str(shape.trainers),
        "ps": str(shape.ps),
        "updates": "synchronous" if shape.sync else "asynchronous",
        "predicted": f"{result.predicted:.0f}",
        "measured": f"{measured:.0f}",
        "predicted / measured": f"{result.predicted / measured:.2f}",
    }
