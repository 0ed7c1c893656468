"""--dry-run: what a training would do, and how long it takes by some of its steps.

They are real steps in a temporary folder; --output-dir and --log-dir are only read.
"""

import dataclasses
import math
import resource
import tempfile
import time
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10 import guard
from cifar10.config.train_config import TrainConfig
from cifar10.host.process import StopRequest, log
from cifar10.input import pipeline
from cifar10.input.records import open_records
from cifar10.output import model_settings
from cifar10.run.initial_weights import with_initial_weights
from cifar10.run.job import describe_training, evaluation_input, make_job
from cifar10.run.start import position_seen_by_worker
from cifar10.run.validation import check_criteria
from cifar10.schema import EVAL, TRAIN, VALIDATION
from cifar10.step.model_fn import count_parameters, model_fn
from cifar10.train import run_config, training_input
from cifar10_program.streams import format_duration

_TIMED_SECS = 5.0


def dry_run(config: TrainConfig, stop: StopRequest) -> None:
    """Prints what training would do, and how long; raises what `train_and_evaluate` raises."""
    records = open_records(config.data_path, TRAIN, EVAL)
    check_criteria(config, records)
    model_settings.check_same(config, records.class_names)
    position = position_seen_by_worker(config.output_path)
    job = make_job(config, records, position)
    pipeline.check_evaluation(records)
    job = with_initial_weights(job, position.step == 0)
    describe_training(job, is_over=position.step >= job.params.total_steps)
    params, last_step = job.params, job.params.total_steps
    between = config.steps_between_checkpoints(last_step, params.total_epochs)
    left = max(0, last_step - position.step)
    num_checkpoints = math.ceil(left / between)
    log(
        f"{count_parameters(config, params.num_classes):,} parameters, {params.total_epochs:.4g} "
        f"epochs, {num_checkpoints:,} checkpoints, one every {between:,} steps"
    )
    validation_secs = 0.0
    with tempfile.TemporaryDirectory() as folder:
        config = dataclasses.replace(config, output_dir=folder, log_dir=None)
        params = dataclasses.replace(params, config=config)
        job, clock = dataclasses.replace(job, config=config, params=params), _Clock()
        estimator = tf.estimator.Estimator(model_fn, config=run_config(job), params=params)
        with guard.of(params, None, records, stop) as guarded:
            estimator.train(lambda: training_input(job), [*guarded.hooks, clock])
            if records.has_validation:
                began = time.monotonic()
                # Without a checkpoint, Estimator evaluates a model's first weights.
                estimator.evaluate(
                    lambda: evaluation_input(job, VALIDATION), hooks=guarded.evaluation_hooks
                )
                validation_secs = time.monotonic() - began
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    secs = left * clock.secs / clock.steps + num_checkpoints * validation_secs
    log(
        f"{params.examples_per_step * clock.steps / clock.secs:,.0f} images/s in {clock.steps:,} "
        f"steps; a validation takes {validation_secs:.1f} s; {gib:.1f} GiB of memory"
    )
    log(f"training takes about {format_duration(secs)}; this was a dry run, nothing was written")


class _Clock(tf.train.SessionRunHook):
    """Ends training after some steps, of which the last `steps` took `secs`."""

    def __init__(self) -> None:
        self.steps, self.secs = -3, 0.0  # The first three choose algorithms and fill caches.

    def before_run(self, run_context: Any) -> None:
        """Starts the clock."""
        self._began = time.monotonic()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts the step."""
        self.steps += 1
        if self.steps > 0:
            self.secs += time.monotonic() - self._began
        if self.secs >= _TIMED_SECS:
            run_context.request_stop()
