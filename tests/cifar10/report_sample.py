"""Sample data for the tests of the report: a result and mistakes as a training run makes them."""

import math
from typing import Any

import numpy as np

from cifar10.report import Mistake
from cifar10.schema import CLASS_NAMES

STEPS_PER_EPOCH = 351.5625


def history() -> dict[str, Any]:
    """Returns a history of 30 epochs with 12 training rows and one validation row each."""
    train = [
        {
            "step": round(record * STEPS_PER_EPOCH / 12),
            "epoch": record / 12,
            "seconds": 6.3 * record,
            "loss": 0.12 + 2.1 * math.exp(-record / 72),
            "accuracy": 0.96 - 0.75 * math.exp(-record / 72),
            "learning_rate": 0.1 if record < 180 else 0.01,
            "images_per_sec": 595.0,
        }
        for record in range(1, 361)
    ]
    measured = ("step", "epoch", "seconds", "loss", "accuracy")
    return {"train": train, "validation": [{k: row[k] for k in measured} for row in train[11::12]]}


def result() -> dict[str, Any]:
    """Returns the result.json of a completed run of ResNet-20 on CIFAR-10."""
    return {
        "status": "completed",
        "model": "ResNet-20 v1",
        "command": ["python", "cifar10_main.py", "--train-batch-size=128", "--data-dir", "my data"],
        "finished_at": "2025-11-07T14:03:21+00:00",
        "figures": {
            "eval_accuracy": 0.9125,
            "eval_accuracy_augmented": None,
            "eval_loss": 0.3127,
            "eval_examples": 10_000,
            "best_validation_accuracy": 0.9188,
            "best_validation_step": 9_844,
            "global_step": 10_547,
            "epochs": 30.0,
            "examples_seen": 1_350_016,
            "training_seconds": 2_268.4,
            "wall_seconds": 2_391.0,
            "images_per_sec": 595.1,
            "num_parameters": 269_722,
        },
        "configuration": {"model": "resnet", "num_layers": 20, "max_minutes": None},
        "versions": {"python": "3.11.7", "tensorflow": "2.15.1", "numpy": "1.26.4"},
        "hardware": {"cpu": "AMD EPYC 9B45", "cores": 2, "memory_gib": 7.8, "gpus": []},
        "data": manifest(),
        "class_names": list(CLASS_NAMES),
        "confusion_matrix": np.diag([1_000] * 10).tolist(),
        "history": history(),
    }


def manifest() -> dict[str, Any]:
    """Returns the manifest of CIFAR-10 with one file per split."""
    splits = {}
    for split, records in (("train", 45_000), ("validation", 5_000), ("eval", 10_000)):
        file = {"name": f"{split}.tfrecords", "records": records, "bytes": records * 3_123}
        splits[split] = {"records": records, "files": [{**file, "sha256": "ab" * 32}]}
    return {
        "format_version": 1,
        "source": {"kind": "python", "name": "CIFAR-10", "fingerprint": "c0ffee" * 10 + "beef"},
        "class_names": list(CLASS_NAMES),
        "seed": 0,
        "splits": splits,
        "channel_mean": [125.3, 122.95, 113.87],
        "channel_deviation": [62.99, 62.09, 66.7],
    }


def mistakes(count: int = 36) -> list[Mistake]:
    """Returns mistakes whose images are colour noise."""
    random = np.random.default_rng(2)
    return [
        Mistake(
            index=17 * number,
            image=random.integers(0, 256, (32, 32, 3), dtype=np.uint8),
            label=number % 10,
            predicted=(number + 3) % 10,
            probability=0.5 + number / 100,
            label_probability=0.3 - number / 200,
        )
        for number in range(count)
    ]
