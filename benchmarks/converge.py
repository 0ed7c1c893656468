"""Checks that networks still learn as before: compares first training steps with committed curves.

    python -m benchmarks converge --data-dir data

trains each recipe, the default settings and two small networks, with three seeds each, and compares
loss and accuracy with the curves in benchmarks/results/converge/. Each run is cifar10_main.py
itself, stopped after a number of steps, not of minutes, so no metric depends on the machine's
speed. It takes about half an hour on two cores. Curves of synthetic and of real images are kept
apart. --write renews the committed curves. Flags after `--` are added to a case's own flags or
replace them: `-- --weight-decay=0` shows what the comparison would notice.

A curve is reduced to the means of its four quarters. In each quarter, and at the validation after
the last step, the means over the seeds may differ by three standard errors of their difference, or
by a floor, whichever is larger. The standard deviation is pooled over the seeds of both curves. In
a quarter it is at least the root mean square over the four quarters, since three seeds can be close
by chance. The learning rate does not depend on chance and must be the same. The bound is not a
statistical test at a known level: on one machine and version the same seeds give the same run, and
elsewhere only rounding makes them differ, so new and old seeds are not independent.

Exit code 1: a curve differs, or training failed.
"""

import argparse
import contextlib
import datetime
import json
import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import arguments
from benchmarks.arguments import BenchmarkError, at_least_one, training_config
from benchmarks.runs import run
from testbeds.processes import ROOT

COMMITTED = ROOT / "benchmarks" / "results" / "converge"
_ROWS = 20  # of a curve
# The steps that each row of a curve averages, and the flags. Two cores of 2023 (AMD Zen 4) train a
# run in about a minute.
CASES = {
    "tutorial": (10, "--recipe=tutorial"),
    "resnet20": (22, "--recipe=resnet20"),
    "resnet44": (10, "--recipe=resnet44"),
    "airbench94": (2, "--recipe=airbench94"),
    "fast": (1, "--recipe=fast"),
    # With its batches of 2,048, a seed would take four minutes.
    "best": (1, "--recipe=best --train-batch-size=512"),
    "default": (82, "--train-batch-size=16"),
    "mlp": (100, "--model=mlp"),
    # Takes seconds, since the tests train it. It states every setting that shapes the curve, so
    # that the curve does not change with the defaults. With a low learning rate, seeds differ less.
    "resnet8": (
        10,
        "--model=resnet --num-layers=8 --train-batch-size=64 --train-epochs=4 --optimizer=momentum "
        "--learning-rate=0.03 --momentum=0.9 --weight-decay=2e-4 --schedule=cosine "
        "--warmup-epochs=0.5",
    ),
}
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

Curve = dict[str, Any]  # the content of a curve's file


class Point(NamedTuple):
    """A metric in which two curves are compared.

    Attributes:
      what: name of the metric, e.g. `training loss of steps 2 to 51`.
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

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.new:.4g}, committed {self.committed:.4g}, allowed difference "
            f"{self.allowed:.2g}"
        )


def main(argv: Sequence[str]) -> int:
    """Trains each case and prints whether its curve agrees with the committed one.

    Returns:
      The exit code: 1 if a curve differs or training failed, else 0.
    """
    options = _parse(argv)
    kind, data = describe_images(options.data_dir)
    words = {name: words_of_case(name, options.training) for name in options.cases}
    paths = {name: COMMITTED / kind / f"{name}.json" for name in options.cases}
    committed = {} if options.write else {name: read_curve(path) for name, path in paths.items()}
    for name, curve in committed.items():
        check_comparable(f"{name}, {kind}", curve, words[name], data)
    agree = True
    for name, path in paths.items():
        title = f"{name}, {kind}"
        try:
            seeds = measure(name, words[name], options.data_dir, options.seeds)
        except BenchmarkError as error:
            print(f"{title}: {error}", flush=True)
            agree = False
            continue
        new = {"case": name, "images": kind, **_conditions(words[name]), "data": data}
        new.update(n=len(seeds), **_shape(name, words[name]), seeds=seeds)
        if committed:
            agrees, text = verdict(title, new, committed[name])
            agree &= agrees
            print(text, flush=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")
            print(f"{title}: written to {path}", flush=True)
    return 0 if agree else 1


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = arguments.new_parser("converge", __doc__, reads=True)
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=tuple(CASES))
    parser.add_argument("--seeds", nargs="+", type=at_least_one, default=(1, 2, 3), metavar="SEED")
    parser.add_argument("--write", action="store_true", help="renew the committed curves")
    options = arguments.parse(parser, argv, ("data_dir", "seed"))
    if options.write and options.training:
        raise BenchmarkError("--write keeps the cases as they are; leave out the flags after --")
    return options


def words_of_case(name: str, more: Sequence[str]) -> list[str]:
    """Returns a case's flags, with `more` added or in their place.

    Raises:
      BenchmarkError: `more` sets what a benchmark chooses itself, e.g. the mode or a cluster.
      ConfigError: `more` is invalid or contradicts the case's own flags.
    """

    def flag_of(word: str) -> str:
        return word.partition("=")[0].replace("_", "-")

    # Batch normalisation uses the images of one tower, and the default number of towers depends on
    # the machine's cores. A fixed number keeps curves comparable between machines.
    own = [*CASES[name][1].split(), "--num-towers=2", "--precision=fp32"]
    replaced = {flag_of(word) for word in more}
    words = [*(word for word in own if flag_of(word) not in replaced), *more]
    training_config(words)
    return words


def _shape(name: str, words: Sequence[str]) -> Curve:
    """Returns the batch size, and the last step of each row; the first step is in no row."""
    every = CASES[name][0]
    return {
        "batch_size": training_config(words).train_batch_size,
        "steps": [1 + every * row for row in range(1, _ROWS + 1)],
    }


def describe_images(data_dir: str) -> tuple[str, dict[str, Any]]:
    """Returns `synthetic` or `cifar-10`, and what identifies the images of a folder of records.

    Raises:
      BenchmarkError: there is no validation split.
      DataError: there are no sound records.
    """
    from cifar10.input.records import open_records  # loads TensorFlow

    records = open_records(data_dir)
    if not records.has_validation:
        raise BenchmarkError(
            f"--data-dir must have a validation split, {data_dir} has none; make one"
        )
    source = records.manifest["source"]
    data = {"source": source["kind"], "fingerprint": source["fingerprint"]}
    data["records"] = dict(records.counts)
    return ("synthetic" if source["kind"] == "synthetic" else "cifar-10"), data


def _conditions(words: Sequence[str]) -> dict[str, Any]:
    """Returns what a curve depends on besides the code; devices as cifar10_main.py plans them."""
    from cifar10.run.results import describe_config
    from cifar10.step import devices
    from cifar10.step.params import ModelParams

    config = training_config(words)
    planned = describe_config(ModelParams(config, devices.plan_devices(config)))
    return {
        "precision": config.precision,
        "measured": datetime.date.today().isoformat(),
        "command": f"python cifar10_main.py {' '.join(words)} --seed=SEED",
        "kernels": planned["kernels"],
        "num_towers": planned["num_towers"],
        "hardware": devices.hardware(),
        "versions": devices.versions(),
    }


def check_comparable(
    title: str, committed: Curve, words: Sequence[str], data: Mapping[str, Any]
) -> None:
    """Checks that a new curve can be compared with the committed one; notes other images.

    Raises:
      BenchmarkError: the batch size, the steps or the number of training images are not those of
        the committed curve.
    """
    before, shape = committed["data"], _shape(committed["case"], words)
    for what, old, new in (
        ("batch size", committed["batch_size"], shape["batch_size"]),
        ("number of steps", committed["steps"][-1], shape["steps"][-1]),
        ("number of training images", before["records"]["train"], data["records"]["train"]),
    ):
        if old != new:
            raise BenchmarkError(
                f"{title}: the {what} must be that of the committed curve, {old}, got {new}; "
                "--write renews the curve"
            )
    if before["fingerprint"] != data["fingerprint"]:
        print(f"note: {title}: the committed curve is of other images, {before['source']}")


def measure(
    name: str, words: Sequence[str], data_dir: str, seeds: Sequence[int]
) -> dict[str, Curve]:
    """Trains a case with each seed; returns the seeds' rows and prints the last metrics of each.

    Raises:
      BenchmarkError: training failed, or a run was too short.
    """
    found, steps = {}, _shape(name, words)["steps"]

    def is_last(line: str) -> bool:
        return line.startswith("validation accuracy ") and f"{steps[-1]:,}" in line.split()

    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="converge-") as folder:
            more = [arguments.data_flag(data_dir), f"--seed={seed}", f"--output-dir={folder}"]
            # The run is stopped, not configured to be shorter, so that a schedule over the whole
            # run stays unchanged.
            more += ["--summary-steps=1", f"--checkpoint-steps={steps[-1]}"]
            with contextlib.closing(run([*words, *more])) as printed:
                any(map(is_last, printed))
            lines = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        curve = seed_rows([json.loads(line) for line in lines], steps)
        text = f"loss {curve['loss'][-1]:.3f}, accuracy {curve['accuracy'][-1]:.3f}, validation "
        text += f"accuracy {curve['validation_accuracy']:.3f}"
        print(f"{name}, seed {seed}: {text}", flush=True)
        found[str(seed)] = curve
    return found


def seed_rows(metrics: Sequence[Mapping[str, Any]], steps: Sequence[int]) -> Curve:
    """Returns the metrics of a run, six digits each, from its rows of metrics.jsonl.

    Args:
      metrics: the rows, one for each step.
      steps: the last step of each row of the curve; the first row begins at step 2.

    Returns:
      `loss` and `accuracy`, means over the steps of each row, without weight decay;
      `learning_rate` of each row's last step; `validation_loss` and `validation_accuracy` after the
      last step.

    Raises:
      BenchmarkError: the run is shorter than the curve, or a loss is not finite.
    """
    train = {row["step"]: row for row in metrics if row["split"] == "train"}
    last = [row for row in metrics if (row["split"], row["step"]) == ("validation", steps[-1])]
    if not last or not set(range(2, steps[-1] + 1)) <= train.keys():
        raise BenchmarkError(
            f"a run must be at least as long as its curve, {steps[-1]:,} steps and their "
            f"validation; this one ended at step {max(train, default=0):,}"
        )
    if any(row["loss"] is None for row in (*train.values(), *last)):
        raise BenchmarkError("the loss must be finite")
    parts = [range(begin + 1, end + 1) for begin, end in zip([1, *steps], steps)]
    found = {
        name: [statistics.fmean(train[step][name] for step in part) for part in parts]
        for name in ("loss", "accuracy")
    }
    found["learning_rate"] = [train[step]["learning_rate"] for step in steps]
    ends = {f"validation_{name}": _rounded(last[0][name]) for name in ("loss", "accuracy")}
    return {**{name: [*map(_rounded, column)] for name, column in found.items()}, **ends}


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def read_curve(path: Path) -> Curve:
    """Reads a curve that --write wrote.

    Raises:
      BenchmarkError: there is none.
    """
    if not path.exists():
        raise BenchmarkError(f"no committed curve {path}; --write makes it, --cases leaves it out")
    content: Curve = json.loads(path.read_text(encoding="utf-8"))
    return content


def verdict(title: str, new: Curve, committed: Curve) -> tuple[bool, str]:
    """Returns whether the curves agree, and a text for the reader that names the differences."""
    points = compare(new, committed)
    differing = [point for point in points if point.share > 1.0]
    both = (
        f"{', '.join(curve['seeds'])}, kernels {curve['kernels']}" for curve in (new, committed)
    )
    said = f"differs at {len(differing)} of {len(points)} points" if differing else "agrees"
    nearest = f"nearest to its bound: {max(points, key=lambda point: point.share)}"
    details = [str(point) for point in differing] or [nearest]
    return not differing, "\n  ".join(
        [f"{title}: {said} (seeds {'; committed '.join(both)})", *details]
    )


def compare(new: Curve, committed: Curve) -> list[Point]:
    """Returns every point in which the curves, of the same steps, are compared."""
    curves = [list(curve["seeds"].values()) for curve in (new, committed)]
    steps = new["steps"]
    rates = [
        Point(f"learning rate of step {step:,}", rate, before, max(_SAME_RATE * before, 1e-12))
        for step, rate, before in zip(steps, *(seeds[0]["learning_rate"] for seeds in curves))
    ]
    points = [max(rates, key=lambda point: point.share)]  # It is the same for all seeds.
    for name in ("loss", "accuracy"):
        points += _quarters(name, steps, curves)
    for name in ("loss", "accuracy"):
        groups = [[seed[f"validation_{name}"] for seed in seeds] for seeds in curves]
        points.append(_point(f"validation {name}", f"after step {steps[-1]:,}", groups, 0.0))
    return points


def _quarters(name: str, steps: Sequence[int], curves: Sequence[Sequence[Curve]]) -> list[Point]:
    """Returns a point for each quarter of the rows; `name` is `loss` or `accuracy`."""
    bounds = [round(len(steps) * quarter / _QUARTERS) for quarter in range(_QUARTERS + 1)]
    parts = list(zip(bounds, bounds[1:]))
    sets = [
        [[statistics.fmean(seed[name][begin:end]) for seed in seeds] for seeds in curves]
        for begin, end in parts
    ]
    usual = math.sqrt(statistics.fmean(_variance(groups) for groups in sets))
    first = [1, *steps]
    places = [f"of steps {first[begin] + 1:,} to {steps[end - 1]:,}" for begin, end in parts]
    return [_point(f"training {name}", *place, usual) for place in zip(places, sets)]


def _point(kind: str, where: str, groups: Sequence[Sequence[float]], usual: float) -> Point:
    """Compares the means of two groups, which hold a number for each seed.

    Args:
      kind: kind of metric, a key of _FLOORS.
      where: part of the curve, e.g. `of steps 2 to 51`.
      groups: the numbers of the new seeds, and those of the committed seeds.
      usual: lower bound of the standard deviation.
    """
    new, committed = (statistics.fmean(group) for group in groups)
    std = max(usual, math.sqrt(_variance(groups)))
    error = std * math.sqrt(sum(1.0 / len(group) for group in groups))
    floor = _FLOORS[kind] * (committed if kind.endswith("loss") else 1.0)
    return Point(f"{kind} {where}", new, committed, max(_STANDARD_ERRORS * error, floor))


def _variance(groups: Sequence[Sequence[float]]) -> float:
    """Returns the pooled variance of the groups; 0 if no group has two numbers."""
    squares = sum((x - statistics.fmean(group)) ** 2 for group in groups for x in group)
    freedom = sum(len(group) - 1 for group in groups)
    return squares / freedom if freedom else 0.0
