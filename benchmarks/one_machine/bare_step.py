"""Measures the training step alone: a constant batch, no input pipeline, hooks or checkpoints.

    python -m benchmarks bare-step --train-batch-size=128 --num-layers=44

takes the flags of cifar10_main.py and prints one JSON line with images_per_sec, from the median
time of 30 steps after five warm-up steps.
"""

import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks import arguments
from cifar10.config.train_config import TrainConfig
from cifar10.step.devices import plan_devices, use_devices
from cifar10.step.model_fn import build_step
from cifar10.step.params import ModelParams

_WARM_UP, _STEPS = 5, 30


def main(argv: Sequence[str]) -> None:
    """Runs the steps and prints the JSON line."""
    tf.logging.set_verbosity(tf.logging.FATAL)
    config = arguments.parse_training_flags("bare-step", __doc__, argv)
    trainer = Trainer(config)
    times = [trainer.train() for _ in range(_WARM_UP + _STEPS)]
    rate = config.train_batch_size / statistics.median(times[_WARM_UP:])
    print(json.dumps({"bare_step": trainer.plan.summary, "images_per_sec": round(rate, 1)}))


class Trainer:
    """Trains repeatedly on one batch of random images.

    Args:
      config: the settings; TensorFlow's thread pools in this process are set up from them.

    Attributes:
      plan: the devices that the step uses.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.plan = plan_devices(config)
        use_devices(self.plan.session_config, self.plan.gpus)
        graph = tf.Graph()
        with graph.as_default():
            tf.train.create_global_step()
            params = ModelParams(config, self.plan, num_examples=45_000, total_steps=1_000)
            step = build_step(*_fixed_batch(config.train_batch_size), params)
            initializer = tf.global_variables_initializer()
        self._fetches = [step.train_op, step.loss]
        self._session: Any = tf.Session(graph=graph, config=self.plan.session_config)
        self._session.run(initializer)

    def train(self) -> float:
        """Trains one step and returns how many seconds it took."""
        start = time.perf_counter()
        self._session.run(self._fetches)
        return time.perf_counter() - start

    def step_secs(self, seconds: float) -> float:
        """Trains for at least `seconds` (above 0); returns the median seconds of a step."""
        times: list[float] = []
        while sum(times) < seconds:
            times.append(self.train())
        return statistics.median(times)


def _fixed_batch(size: int) -> tuple[Any, Any]:
    """Returns constant random images uint8 [size, 32, 32, 3] and labels int64 [size]."""
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
