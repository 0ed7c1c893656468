"""A learning curve of several seeds, and the JSON file that holds it with its conditions."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.convergence.cases import Case
from benchmarks.convergence.cut_run import Beginning, TrainingFailedError
from benchmarks.errors import BenchmarkError

SYNTHETIC, REAL = "synthetic", "cifar-10"
_DIGITS = 6  # significant digits of a figure in the file


class Images(NamedTuple):
    """The images that a curve is trained on.

    Attributes:
      kind: SYNTHETIC or REAL; curves are compared only with curves of the same kind.
      data: kind and fingerprint of the source, number of records of each split, and SHA-256 of the
        training files.
    """

    kind: str
    data: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class SeedCurve:
    """The curve of one seed; each tuple has a number for each row.

    Attributes:
      loss: training loss without weight decay, mean over the steps of the row.
      accuracy: training accuracy from 0 to 1, mean over the steps of the row.
      learning_rate: learning rate of the row's last step.
      validation_loss: loss on the validation split after the last step.
      validation_accuracy: accuracy on the validation split after the last step.
    """

    loss: tuple[float, ...]
    accuracy: tuple[float, ...]
    learning_rate: tuple[float, ...]
    validation_loss: float
    validation_accuracy: float

    @classmethod
    def of(cls, beginning: Beginning) -> "SeedCurve":
        """Makes the curve of a run, with its figures rounded.

        Raises:
          TrainingFailedError: a loss is not finite.
        """
        losses = [*(row["loss"] for row in beginning.rows), beginning.validation["loss"]]
        if not all(map(math.isfinite, losses)):
            raise TrainingFailedError(f"the loss must be finite, got {losses}")

        def column(name: str) -> tuple[float, ...]:
            return tuple(_rounded(row[name]) for row in beginning.rows)

        last = {name: _rounded(beginning.validation[name]) for name in ("loss", "accuracy")}
        return cls(
            column("loss"),
            column("accuracy"),
            column("learning_rate"),
            last["loss"],
            last["accuracy"],
        )


@dataclasses.dataclass(frozen=True)
class Curve:
    """The curves of all seeds of a case, on one kind of images.

    Attributes:
      case: name of the case.
      images: SYNTHETIC or REAL.
      precision: `fp32` or `bf16`.
      batch_size: images per step.
      steps: the last step of each row.
      conditions: date, command, kernels, number of towers, hardware, versions and data.
      seeds: seed -> curve of that seed.
    """

    case: str
    images: str
    precision: str
    batch_size: int
    steps: tuple[int, ...]
    conditions: Mapping[str, Any]
    seeds: Mapping[int, SeedCurve]

    @property
    def title(self) -> str:
        """Case, images and precision, for messages and pictures."""
        return f"{self.case}, {self.images}, {self.precision}"

    def save(self, path: Path) -> None:
        """Writes the curve as JSON, laid out so that diffs stay readable."""
        content = {
            "case": self.case,
            "images": self.images,
            "precision": self.precision,
            **self.conditions,
            "n": len(self.seeds),
            "batch_size": self.batch_size,
            "steps": self.steps,
            "seeds": {str(seed): dataclasses.asdict(one) for seed, one in self.seeds.items()},
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_as_lines(content) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Curve":
        """Reads a file that `save` wrote.

        Raises:
          BenchmarkError: the file is not of that form.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            seeds = {int(seed): _seed_curve(one) for seed, one in content.pop("seeds").items()}
            names = ("case", "images", "precision", "batch_size", "steps")
            own = {name: content.pop(name) for name in names}
            if content.pop("n") != len(seeds) or not seeds:
                raise ValueError("n is not the number of seeds")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BenchmarkError(
                f"{path} is not what converge writes ({error}); --write renews it"
            ) from error
        return cls(**{**own, "steps": tuple(own["steps"])}, conditions=content, seeds=seeds)


def place_of(folder: Path, images: str, case: Case) -> Path:
    """Returns the path of a case's curve in a folder of curves; `images` is SYNTHETIC or REAL."""
    return folder / images / case.file_name


def _seed_curve(content: Mapping[str, Any]) -> SeedCurve:
    lists = [tuple(content[name]) for name in ("loss", "accuracy", "learning_rate")]
    loss, accuracy = content["validation_loss"], content["validation_accuracy"]
    return SeedCurve(lists[0], lists[1], lists[2], loss, accuracy)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _as_lines(value: Any, depth: int = 3, indent: str = "") -> str:
    """Formats JSON with a line for each entry of an object, `depth` levels deep."""
    if not depth or not isinstance(value, Mapping):
        return json.dumps(value)
    inner = indent + " "
    lines = [f"{inner}{json.dumps(k)}: {_as_lines(v, depth - 1, inner)}" for k, v in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def seeds_text(seeds: Mapping[int, Any]) -> str:
    """Names the seeds: `seeds 1, 2, 3`."""
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
