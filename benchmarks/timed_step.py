"""Real training steps of one setting, timed."""

import statistics
import time
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.step.devices import plan_devices, size_thread_pools
from cifar10.step.model_fn import build_step
from cifar10.step.params import ModelParams


class Trainer:
    """Trains on a batch of random images, again and again; has trained one step once it is made.

    Args:
      config: the settings; this process's thread pools become theirs.
    """

    def __init__(self, config: TrainConfig) -> None:
        plan = plan_devices(config)
        size_thread_pools(plan.session_config)
        size, random = config.train_batch_size, np.random.default_rng(0)
        graph = tf.Graph()
        with graph.as_default():
            images = tf.placeholder(tf.uint8, [size, 32, 32, 3])
            labels = tf.placeholder(tf.int64, [size])
            tf.train.create_global_step()
            params = ModelParams(config, plan, num_examples=45_000, total_steps=1_000)
            step = build_step(images, labels, params)
            initializer = tf.global_variables_initializer()
        self._feed = {
            images: random.integers(0, 256, (size, 32, 32, 3), np.uint8),
            labels: random.integers(0, 10, size, np.int64),
        }
        self._fetches = [step.train_op, step.loss]
        self._session: Any = tf.Session(graph=graph, config=plan.session_config)
        self._session.run(initializer)
        self._train()

    def step_secs(self, seconds: float) -> float:
        """Trains for about that long, one step at least; returns the median seconds of a step."""
        times: list[float] = []
        while sum(times) < seconds:
            times.append(self._train())
        return statistics.median(times)

    def _train(self) -> float:
        start = time.perf_counter()
        self._session.run(self._fetches, self._feed)
        return time.perf_counter() - start
