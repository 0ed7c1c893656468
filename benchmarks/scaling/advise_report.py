"""Reports the results of `advise`: a ranked table, and the best way."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table

from benchmarks.scaling.advised_ways import Way
from benchmarks.scaling.measured_run import Figures

_AS_GOOD = 0.95  # share of the fastest rate that counts as equal: runs of the same way differ more


class Result(NamedTuple):
    """A way to train, its batch size per trainer, and its figures, one for each round."""

    way: Way
    batch_size: int
    figures: tuple[Figures, ...]

    @property
    def rates(self) -> list[float]:
        """images/s of each round."""
        return [one.images_per_sec for one in self.figures]

    @property
    def rate(self) -> float:
        """The median images/s."""
        return statistics.median(self.rates)

    @property
    def staleness(self) -> float:
        """The median number of updates by others since a gradient's weights were read."""
        return statistics.median(one.staleness for one in self.figures)

    @property
    def update_images(self) -> int:
        """The number of images whose gradients make up one update."""
        return self.batch_size * (self.way.trainers if self.way.sync else 1)

    def why(self, others: "Sequence[Result]") -> str:
        """Returns a text that says why this result is the best of `others`."""
        words = f"{self.way.title}, {self.way.updates}, {self.rate:,.0f} images/s"
        fastest = ranked(others)[0]
        if fastest == self:
            return words
        return (
            f"{words}: within {100 - 100 * _AS_GOOD:.0f} % of the fastest, with gradients that are "
            "no staler and fewer tasks or updates of fewer images"
        )


def ranked(results: Sequence[Result]) -> list[Result]:
    """Sorts results by images/s, the fastest first."""
    return sorted(results, key=lambda result: -result.rate)


def best_of(results: Sequence[Result]) -> Result:
    """Chooses, among results about as fast as the fastest, the least stale, then the simplest."""
    ways = ranked(results)
    as_fast = [result for result in ways if result.rate >= _AS_GOOD * ways[0].rate]
    return min(
        as_fast,
        key=lambda one: (round(one.staleness, 1), one.update_images, one.way.trainers + one.way.ps),
    )


def table_of(results: Sequence[Result]) -> Table:
    """Returns a table with a row for each result, in the order given."""
    table = Table(
        title="ways to train",
        caption=(
            "stale: updates by others since a gradient's weights were read, mean over gradients, "
            "from the steps of each trainer and of all; "
            "cores: kept busy by all tasks, from their CPU time; "
            "wire, loopback: sent between and within hosts, from their interfaces' counters"
        ),
    )
    table.add_column("way")
    table.add_column("updates")
    for name in ("images/s", "lowest, highest", "stale", "images an update", "cores"):
        table.add_column(name, justify="right")
    for name in ("wire MB/s", "loopback MB/s"):
        table.add_column(name, justify="right")
    for result in results:
        median = {
            name: statistics.median(getattr(one, name) for one in result.figures)
            for name in ("busy_cores", "wire_bytes", "loopback_bytes")
        }
        table.add_row(
            result.way.title,
            result.way.updates,
            f"{result.rate:,.0f}",
            f"{min(result.rates):,.0f}, {max(result.rates):,.0f}",
            f"{result.staleness:.1f}",
            f"{result.update_images:,}",
            f"{median['busy_cores']:.1f}",
            f"{median['wire_bytes'] / 1e6:.1f}",
            f"{median['loopback_bytes'] / 1e6:.1f}",
        )
    return table
