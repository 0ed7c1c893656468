"""Small constant curves for tests, whose means are known."""

from collections.abc import Sequence
from typing import Any

from benchmarks.convergence.curve import Curve, SeedCurve

DATA = {
    "source": "synthetic",
    "fingerprint": "f1",
    "records": {"train": 9000, "validation": 1000, "eval": 2000},
    "train_sha256": "abc",
}
CONDITIONS: dict[str, Any] = {
    "measured": "2025-01-31",
    "command": "python cifar10_main.py --seed=SEED",
    "kernels": "own",
    "num_towers": 2,
    "hardware": {"cpu": "a CPU", "cores": 2, "memory_gib": 8.0, "gpus": []},
    "versions": {"python": "3.11.7", "tensorflow": "2.15.1"},
    "data": DATA,
}


def seed_curve(
    accuracy: float, validation: float = 0.8, rate: float = 0.1, loss: float = 1.0
) -> SeedCurve:
    """Returns a curve of eight rows with the same loss and accuracy."""
    return SeedCurve((loss,) * 8, (accuracy,) * 8, (rate,) * 8, loss, validation)


def curve(seeds: Sequence[SeedCurve]) -> Curve:
    """Returns a curve of resnet8 with eight rows of ten steps for each seed."""
    steps = (11, 21, 31, 41, 51, 61, 71, 81)
    numbered = dict(enumerate(seeds, start=1))
    return Curve("resnet8", "synthetic", "fp32", 64, steps, CONDITIONS, numbered)
