"""The training step alone: one batch that never changes, no input, no hooks, no checkpoints.

    python -m benchmarks bare-step --train-batch-size=128 --num-layers=44

takes the flags of cifar10_main.py and prints one JSON line with images_per_sec: the median of 30
steps after five warm-up steps.
"""

import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.config import flags
from cifar10.step.devices import plan_devices
from cifar10.step.model_fn import model_fn
from cifar10.step.params import ModelParams

_WARM_UP, _STEPS = 5, 30


def main(argv: Sequence[str]) -> None:
    """Runs the steps."""
    tf.logging.set_verbosity(tf.logging.FATAL)
    config = flags.parse(argv)
    plan = plan_devices(config)
    params = ModelParams(config, plan, num_examples=45_000, total_steps=1_000)
    with tf.Graph().as_default(), tf.Session(config=plan.session_config) as session:
        tf.train.create_global_step()
        spec = model_fn(*fixed_batch(config.train_batch_size), "train", params)
        session.run(tf.global_variables_initializer())
        times = []
        for _ in range(_WARM_UP + _STEPS):
            start = time.perf_counter()
            session.run([spec.train_op, spec.loss])
            times.append(time.perf_counter() - start)
    rate = config.train_batch_size / statistics.median(times[_WARM_UP:])
    print(json.dumps({"bare_step": plan.summary, "images_per_sec": round(rate, 1)}))


def fixed_batch(size: int) -> tuple[Any, Any]:
    """Random images uint8 [size, 32, 32, 3] and labels int64 [size] that never change."""
    random = np.random.default_rng(0)
    values = {
        "images": random.integers(0, 256, (size, 32, 32, 3), np.uint8),
        "labels": random.integers(0, 10, size, np.int64),
    }
    images, labels = (
        tf.get_variable(name, initializer=value, trainable=False, use_resource=True)
        for name, value in values.items()
    )
    return images, labels
