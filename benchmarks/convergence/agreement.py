"""Decides whether a new curve agrees with a committed one, by the spread between their seeds.

A curve is reduced to the means of its four quarters. In each quarter, and at the validation after
the last step, the means over the seeds may differ by three standard errors of their difference, or
by a floor, whichever is larger. The standard deviation is pooled over the seeds of both curves. In
a quarter it is at least the root mean square over the four quarters, since three seeds can be close
by chance. The learning rate does not depend on chance and must be the same.

The bound is not a statistical test at a known level: on one machine and version the same seeds give
the same run, and elsewhere only rounding makes them differ, so new and old seeds are not
independent.
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
# Differences that are always allowed: absolute for accuracies, relative to the committed mean for
# losses. The moving statistics have seen few steps when a curve ends, so validation varies more.
_FLOORS = {
    "training loss": 0.02,
    "training accuracy": 0.01,
    "validation loss": 0.05,
    "validation accuracy": 0.02,
}
_SAME_RATE = 1e-4  # relative


class Point(NamedTuple):
    """A figure in which two curves are compared.

    Attributes:
      what: name of the figure, e.g. `training loss of steps 2 to 51`.
      new: mean over the seeds of the new curve.
      committed: mean over the seeds of the committed curve.
      allowed: largest difference between the two that counts as agreement.
    """

    what: str
    new: float
    committed: float
    allowed: float

    @property
    def share(self) -> float:
        """The difference as a share of the allowed one; infinite if it is not finite."""
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
    """Checks that a new curve can be compared with the committed one.

    Args:
      case: the case that will be trained.
      rows: number of rows of the new curve.
      committed: the committed curve.
      images: the images that the new curve will be trained on.

    Returns:
      A note for the reader if the curves are of different images; else an empty list.

    Raises:
      BenchmarkError: the batch size, the steps or the number of training images are not those of
        the committed curve.
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
    """Returns whether the curves agree, and a text for the reader that names the differences."""
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
    """Returns every point in which the curves are compared.

    Args:
      new: the new curve. If it has fewer rows than the committed one, it is compared with the first
        rows of that one, and validation, which comes at the end, is not compared.
      committed: the committed curve.
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
    """Returns the point at which the learning rate, which all seeds share, differs most."""
    rows = zip(new.steps, _any_seed(new).learning_rate, _any_seed(committed).learning_rate)
    points = [
        Point(f"learning rate of step {step:,}", rate, before, max(_SAME_RATE * before, 1e-12))
        for step, rate, before in rows
    ]
    return max(points, key=lambda point: point.share)


def _any_seed(curve: Curve) -> SeedCurve:
    return next(iter(curve.seeds.values()))


def _quarters(new: Curve, committed: Curve, name: str) -> list[Point]:
    """Returns a point for each quarter of the rows; `name` is `loss` or `accuracy`."""
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
    """Compares the means of two groups, which hold a number for each seed.

    Args:
      kind: kind of figure, a key of _FLOORS.
      where: place in the curve, e.g. `of steps 2 to 51`.
      groups: the numbers of the new seeds, and those of the committed seeds.
      usual: lower bound of the standard deviation.
    """
    new, committed = (statistics.fmean(group) for group in groups)
    deviation = max(usual, math.sqrt(_variance(groups)))
    error = deviation * math.sqrt(sum(1.0 / len(group) for group in groups))
    floor = _FLOORS[kind] * (committed if kind.endswith("loss") else 1.0)
    allowed = max(_STANDARD_ERRORS * error, floor)
    return Point(f"{kind} {where}", new, committed, allowed)


def _variance(groups: Sequence[Sequence[float]]) -> float:
    """Returns the pooled variance of the groups; 0 if no group has two numbers."""
    squares = sum((x - statistics.fmean(group)) ** 2 for group in groups for x in group)
    freedom = sum(len(group) - 1 for group in groups)
    return squares / freedom if freedom else 0.0
