"""Whether a new curve agrees with a committed one, by the spread between their seeds.

A curve is smoothed to the means of its four quarters. At each of them, and at the validation after
the last step, the means over the seeds may differ by three standard errors of their difference, or
by a floor, whichever is more. The standard deviation is that of both curves' seeds together, and no
smaller than its root mean square over the four quarters: three seeds can be close by chance. The
learning rate does not depend on chance and must be the same.

The bound is not a test at a known level: on one machine and version the same seeds give the same
run, and elsewhere rounding alone makes them part, so that new and old seeds are not independent.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.convergence.cases import Case
from benchmarks.convergence.curve import Curve, Images, SeedCurve, seeds_text
from benchmarks.errors import BenchmarkError
from cifar10.schema import TRAIN

_QUARTERS = 4
_STANDARD_ERRORS = 3.0
# What may differ in any case: accuracies as they are, losses as a share of the committed one. A
# network's moving statistics are young when a curve ends, so validation varies more.
_FLOORS = {
    "training loss": 0.02,
    "training accuracy": 0.01,
    "validation loss": 0.05,
    "validation accuracy": 0.02,
}
_SAME_RATE = 1e-4  # relative


class Point(NamedTuple):
    """Where two curves are compared.

    Attributes:
      what: e.g. `training loss of steps 2 to 51`.
      new: mean over the seeds of the new curve.
      committed: likewise.
      allowed: difference.
    """

    what: str
    new: float
    committed: float
    allowed: float

    @property
    def share(self) -> float:
        """The difference as a share of what is allowed; infinite where it is not a number."""
        difference = abs(self.new - self.committed)
        return difference / self.allowed if math.isfinite(difference) else math.inf

    @property
    def agrees(self) -> bool:
        """Whether the difference is allowed."""
        return self.share <= 1.0

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.new:.4g}, committed {self.committed:.4g}, allowed difference "
            f"{self.allowed:.2g}"
        )


def check_comparable(case: Case, rows: int, committed: Curve, images: Images) -> list[str]:
    """Checks that a new curve can be held against the committed one.

    Returns:
      A note for the reader if the curves are of different images.

    Raises:
      BenchmarkError: the steps or the number of images are not those of the committed curve.
    """
    steps = case.steps(rows)
    if committed.batch_size != case.batch_size or committed.steps[:rows] != steps:
        raise BenchmarkError(
            f"{committed.title}: the committed curve has {len(committed.steps)} rows up to step "
            f"{committed.steps[-1]:,} of {committed.batch_size} images, and this one {rows} up to "
            f"step {steps[-1]:,} of {case.batch_size}; fewer --rows, or --write to renew it"
        )
    before, now = committed.conditions["data"], images.data
    if before["records"][TRAIN] != now["records"][TRAIN]:
        raise BenchmarkError(
            f"{committed.title}: an epoch must be that of the committed curve, "
            f"{before['records'][TRAIN]:,} training images, got {now['records'][TRAIN]:,}; choose "
            "another --data-dir, or --write to renew the curve"
        )
    if before["train_sha256"] != now["train_sha256"]:
        return [f"{committed.title}: the committed curve is of other images, {before['source']}"]
    return []


def verdict(new: Curve, committed: Curve) -> tuple[bool, str]:
    """Whether the curves agree; and lines that say so, or where they do not."""
    points = compare(new, committed)
    differing = [point for point in points if not point.agrees]
    conditions = (
        f"{seeds_text(new.seeds)}, kernels {new.conditions['kernels']}; committed "
        f"{seeds_text(committed.seeds)}, kernels {committed.conditions['kernels']}"
    )
    if differing:
        said = f"differs at {len(differing)} of {len(points)} points"
        shown = [str(point) for point in differing]
    else:
        said = "agrees"
        shown = [f"nearest to its bound: {max(points, key=lambda point: point.share)}"]
    lines = [f"{new.title}: {said} ({conditions})", *(f"  {text}" for text in shown)]
    return not differing, "\n".join(lines)


def compare(new: Curve, committed: Curve) -> list[Point]:
    """All points at which the curves are compared, in their order.

    Args:
      new: may have fewer rows than the committed one; it is then compared with its beginning, and
        validation, which comes at the end, is not compared.
      committed: the curve to hold it against.
    """
    points = [_rate(new, committed)]
    for name in ("loss", "accuracy"):
        points += _quarters(new, committed, name)
    if new.steps[-1] == committed.steps[-1]:
        for name in ("loss", "accuracy"):
            sets = [
                [float(getattr(one, f"validation_{name}")) for one in curve.seeds.values()]
                for curve in (new, committed)
            ]
            kind = f"validation {name}"
            points.append(_point(kind, f"after step {new.steps[-1]:,}", sets, 0.0))
    return points


def _rate(new: Curve, committed: Curve) -> Point:
    """Returns the step at which the learning rate, which all seeds share, differs most."""
    rows = zip(new.steps, _any_seed(new).learning_rate, _any_seed(committed).learning_rate)
    points = [
        Point(f"learning rate of step {step:,}", rate, before, max(_SAME_RATE * before, 1e-12))
        for step, rate, before in rows
    ]
    return max(points, key=lambda point: point.share)


def _any_seed(curve: Curve) -> SeedCurve:
    return next(iter(curve.seeds.values()))


def _quarters(new: Curve, committed: Curve, name: str) -> list[Point]:
    """Returns a point for each quarter of the rows."""
    rows = len(new.steps)
    bounds = sorted({round(rows * quarter / _QUARTERS) for quarter in range(_QUARTERS + 1)})
    parts = list(zip(bounds, bounds[1:]))
    sets = [
        [
            [statistics.fmean(getattr(one, name)[begin:end]) for one in curve.seeds.values()]
            for curve in (new, committed)
        ]
        for begin, end in parts
    ]
    usual = math.sqrt(statistics.fmean(_variance(groups) for groups in sets))
    first = [1, *new.steps]
    return [
        _point(
            f"training {name}",
            f"of steps {first[begin] + 1:,} to {new.steps[end - 1]:,}",
            groups,
            usual,
        )
        for (begin, end), groups in zip(parts, sets)
    ]


def _point(kind: str, where: str, groups: Sequence[Sequence[float]], usual: float) -> Point:
    """Compares the means of two groups, a number a seed each.

    Args:
      kind: one of _FLOORS.
      where: in the curve.
      groups: of the new seeds, and of the committed ones.
      usual: standard deviation that is assumed at least.
    """
    new, committed = (statistics.fmean(group) for group in groups)
    deviation = max(usual, math.sqrt(_variance(groups)))
    error = deviation * math.sqrt(sum(1.0 / len(group) for group in groups))
    floor = _FLOORS[kind] * (committed if kind.endswith("loss") else 1.0)
    allowed = max(_STANDARD_ERRORS * error, floor)
    return Point(f"{kind} {where}", new, committed, allowed)


def _variance(groups: Sequence[Sequence[float]]) -> float:
    """Returns the variance of both groups around their own means; 0 if no group has two numbers."""
    squares = sum((x - statistics.fmean(group)) ** 2 for group in groups for x in group)
    freedom = sum(len(group) - 1 for group in groups)
    return squares / freedom if freedom else 0.0
