"""Measures the curve of a case on this machine: a run for each seed, and the conditions."""

import datetime
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf2

from benchmarks.convergence.cases import Case
from benchmarks.convergence.curve import REAL, SYNTHETIC, Curve, Images, SeedCurve
from benchmarks.convergence.cut_run import train_beginning
from cifar10.config import flags
from cifar10.input.records import RecordSet
from cifar10.run import environment
from cifar10.schema import TRAIN
from cifar10.step.devices import plan_devices
from cifar10.step.params import ModelParams


def measure(
    case: Case, images: Images, data_dir: str, seeds: Sequence[int], steps: Sequence[int]
) -> Curve:
    """Trains a case with each seed, and prints the last figures of each run.

    Args:
      case: the case to train.
      images: description of the images in `data_dir`.
      data_dir: folder of the records.
      seeds: seeds, with a run for each.
      steps: the last step of each row of the curve.

    Raises:
      TrainingFailedError: training failed.
      BenchmarkError: the program refused its flags, or a run was too short.
    """
    data_flag = data_dir if "://" in data_dir else Path(data_dir).resolve()
    found = {}
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="converge-") as folder:
            words = [*case.words, f"--data-dir={data_flag}", f"--seed={seed}"]
            one = SeedCurve.of(train_beginning(words, steps, Path(folder)))
        print(
            f"{case.name}, {case.precision}, seed {seed}: loss {one.loss[-1]:.3f}, accuracy "
            f"{one.accuracy[-1]:.3f}, validation accuracy {one.validation_accuracy:.3f}",
            flush=True,
        )
        found[seed] = one
    return Curve(
        case.name,
        images.kind,
        case.precision,
        case.batch_size,
        tuple(steps),
        _conditions(case, images),
        found,
    )


def describe_images(records: RecordSet) -> Images:
    """Describes records by their source and by the SHA-256 of the training files in their order."""
    digest = hashlib.sha256()
    for path in records.files[TRAIN]:
        with tf2.io.gfile.GFile(path, "rb") as file:
            digest.update(file.read())
    source = records.manifest["source"]
    data = {
        "source": source["kind"],
        "fingerprint": source["fingerprint"],
        "records": dict(records.counts),
        "train_sha256": digest.hexdigest(),
    }
    return Images(SYNTHETIC if source["kind"] == SYNTHETIC else REAL, data)


def _conditions(case: Case, images: Images) -> dict[str, Any]:
    """Returns what a curve depends on besides the code; devices as cifar10_main.py plans them."""
    config = flags.parse(case.words)
    planned = environment.describe_config(ModelParams(config, plan_devices(config)))
    return {
        "measured": datetime.date.today().isoformat(),
        "command": f"python cifar10_main.py {' '.join(case.words)} --seed=SEED",
        "kernels": planned["kernels"],
        "num_towers": planned["num_towers"],
        "hardware": environment.hardware(),
        "versions": environment.versions(),
        "data": dict(images.data),
    }
