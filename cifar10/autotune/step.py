"""A child of --autotune: times training steps with thread pools of its own.

    python -m cifar10.autotune.step

A process has one pool of threads inside ops, so settings with pools of another size are measured in
another process. Lines of JSON go to and fro. In comes a list of configurations, each of which is
answered with its index once it has trained a step; then orders [index, seconds], each answered with
the median seconds of that configuration's steps in that time, one step at least. The process ends
with its standard input, even in the middle of a step: it does not outlive who started it.
"""

import json
import os
import queue
import statistics
import sys
import threading
import time
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.config import TrainConfig
from cifar10.devices import DevicePlan, plan_devices, size_thread_pools
from cifar10.model_fn import ModelParams, model_fn


def main() -> None:
    """Answers orders until there are no more."""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    # Whatever prints to standard output from now on prints to standard error.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    configs = [TrainConfig(**{**values, "images": ()}) for values in json.loads(lines.get())]
    plans = [plan_devices(config) for config in configs]
    size_thread_pools(plans[0].session_config)
    trainers = []
    for index, (config, plan) in enumerate(zip(configs, plans)):
        trainers.append(_Trainer(config, plan))
        print(json.dumps(index), file=answers)
    while True:
        index, seconds = json.loads(lines.get())
        print(json.dumps(trainers[index].step_secs(seconds)), file=answers)


def _read_lines(lines: "queue.Queue[str]") -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


class _Trainer:
    """Trains on a batch of random images, again and again; has trained one step once it is made."""

    def __init__(self, config: TrainConfig, plan: DevicePlan) -> None:
        # Beside other sessions: its threads between ops are its own.
        session_config = tf.ConfigProto(use_per_session_threads=True)
        session_config.MergeFrom(plan.session_config)
        size, random = config.train_batch_size, np.random.default_rng(0)
        graph = tf.Graph()
        with graph.as_default():
            images = tf.placeholder(tf.uint8, [size, 32, 32, 3])
            labels = tf.placeholder(tf.int64, [size])
            tf.train.create_global_step()
            params = ModelParams(config, plan)
            spec = model_fn(images, labels, tf.estimator.ModeKeys.TRAIN, params)
            initializer = tf.global_variables_initializer()
        self._feed = {
            images: random.integers(0, 256, (size, 32, 32, 3), np.uint8),
            labels: random.integers(0, 10, size, np.int64),
        }
        self._fetches = [spec.train_op, spec.loss]
        self._session: Any = tf.Session(graph=graph, config=session_config)
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


if __name__ == "__main__":
    main()
