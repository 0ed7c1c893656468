"""Sample data for the tests of the report: a result and mistakes as a training run makes them."""

import math
from typing import Any

import numpy as np

from cifar10.output.report import Mistake
from cifar10.schema import CLASS_NAMES

STEPS_PER_EPOCH = 351.5625


def history() -> dict[str, Any]:
    """Returns a history of 30 epochs with 12 training rows and one validation row each."""
    random = np.random.default_rng(1)
    train, validation = [], []
    for record in range(1, 361):
        epoch = record / 12
        loss = 0.12 + 2.1 * math.exp(-epoch / 6) + 0.06 * float(random.normal())
        row = {"step": round(epoch * STEPS_PER_EPOCH), "epoch": epoch, "seconds": 75.6 * epoch}
        speed = {"learning_rate": 0.1 if epoch < 15 else 0.01, "images_per_sec": 595.0}
        train.append({**row, "loss": loss, "accuracy": 1 - 0.36 * loss, **speed})
        if record % 12 == 0:
            validation.append({**row, "loss": loss + 0.1, "accuracy": 0.95 - 0.36 * loss})
    return {"train": train, "validation": validation}


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
        file = {
            "name": f"{split}.tfrecords",
            "records": records,
            "bytes": records * 3_123,
            "sha256": "ab" * 32,
        }
        splits[split] = {"records": records, "files": [file]}
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
