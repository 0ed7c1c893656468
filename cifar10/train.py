"""Training: what a chief and a worker do, from records to results. Read this file first.

A process alone is a chief. In a cluster, the chief (or master) saves, validates and writes results;
workers train with it, parameter servers hold the weights, and an evaluator may validate meanwhile.

A run continues from its output folder by four rules:
1. From the newest checkpoint that is complete and finite, which Estimator restores; damaged ones
   are renamed. Without one, a new run begins, from --init-checkpoint if that is given.
2. With the model that run.json names; other records are allowed.
3. At the first image that the job has not seen, which the checkpoint counts; so do the curves.
4. If its last step is saved, or a goal was reached, only what is missing is made.

The chief saves when a session begins, every --checkpoint-steps and at the end, and validates each
checkpoint. A run ends at its last step, at a goal, at --max-minutes, by a signal, before which it
saves, or by an error: a value that is not finite, a task that is missing, a stall. Workers end with
the chief. What happens between two steps is in `run/training_hook.py`, a step in
`step/training_step.py`.
"""

import math
import time
from typing import Callable, Optional

from cifar10 import guard
from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import TrainingOver
from cifar10.guard import Guard, folder_lock
from cifar10.host.process import StopRequest, say
from cifar10.input.records import open_records
from cifar10.output import checkpoints, run_file
from cifar10.output.progress import ProgressLine
from cifar10.output.training_progress import Progress
from cifar10.run import results, resume
from cifar10.run.job import (
    Job,
    describe_training,
    make_job,
    make_trainer,
    open_output,
    training_input,
)
from cifar10.run.resume import Start
from cifar10.run.training_hook import ChiefHook, WorkerHook
from cifar10.run.validation import Validator, check_goals
from cifar10.schema import EVAL, TRAIN


def train_and_evaluate(
    config: TrainConfig,
    stop: StopRequest,
    started: float,
    cluster: Optional[Cluster] = None,
) -> None:
    """Trains, validates after each checkpoint, evaluates the best one, reports and exports.

    Args:
      config: the settings.
      stop: knows whether a signal has arrived.
      started: the time when the process started (`time.monotonic`), in seconds.
      cluster: the cluster whose chief this process is; None: it trains alone.

    Raises:
      UserError: the data or the settings are wrong.
      TrainingError: training failed, or a task that is needed does not answer in time.
      Stopped: a signal arrived; if training had begun, a checkpoint has been saved.
    """
    records = open_records(config.data_place)
    for split in (TRAIN, EVAL):
        records.require(split)
    check_goals(config, records)
    open_output(config)
    places = (config.output_place, config.log_place)
    with folder_lock.hold(*places, folder_lock.TRAINING, stop.check) as check_owner:  # One run.
        start = resume.find_start(config, records, cluster)  # Rules 1 and 3.
        with resume.joined(config, records, cluster, stop, start) as (job, guarded):
            resume.note_model(job, start)  # Rule 2.
            finished = results.describe_finished(config.output_place, start.done.step)
            if start.is_over and finished:  # Rule 4.
                guarded.tell_end()
                say(finished)
                return
            _train_to_results(job, guarded, start, stop, started, check_owner)


def train_as_worker(config: TrainConfig, cluster: Cluster, stop: StopRequest) -> None:
    """Trains with the chief, which saves and validates; raises what `train_and_evaluate` does."""
    records = open_records(config.data_place)
    records.require(TRAIN)
    steps = 0

    def check() -> None:
        """Ends the waiting for other tasks where it is useless."""
        stop.check()
        end = resume.step_of_end(config, cluster, records)
        if end is not None:
            raise TrainingOver(end)

    try:
        check()
        done = resume.seen_by_worker(config.output_place)
        job = make_job(config, records, done, cluster)
        with guard.of(job.params, cluster, records, stop, check=check) as guarded:
            steps, ending = _train_with_chief(job, guarded, stop)
    except TrainingOver as over:  # Before this worker had joined.
        ending = str(over)
    say(f"{cluster.label} ends: {ending}; it trained {steps:,} steps")


def _train_to_results(
    job: Job,
    guarded: Guard,
    start: Start,
    stop: StopRequest,
    started: float,
    check_owner: Callable[[], None],
) -> None:
    """Trains from `start`, and sees to it that the figures exist at the end."""
    job = resume.with_first_values(job, start)
    describe_training(job, start.done.step, guarded.describe(job.params.examples_per_step))
    metrics = resume.prepare_folder(job, start)  # Rule 3, of the curves.
    epochs = job.params.total_epochs
    with ProgressLine(job.total_steps, epochs, start_step=start.done.step) as line:
        progress = Progress(line, job.config, job.num_examples, job.own_examples, metrics)
        deadline = started + 60.0 * (job.config.max_minutes or math.inf)
        validator = Validator(job, guarded, metrics, line.message)
        validate = validator.validate_latest  # Skips a checkpoint that has a validation.
        hook = ChiefHook(job, stop, progress, guarded, deadline, check_owner, validate)
        if job.validates:  # A run may have been killed after it saved this checkpoint.
            validate()
        if not hook.judge() and not start.is_over:  # Rule 4.
            # tf.estimator.train_and_evaluate would build the graph of each validation anew.
            make_trainer(job).train(lambda: training_input(job), [*guarded.hooks, hook])
        stop.check()
        _note_the_end(job, hook.status)
        guarded.tell_end()
        if job.records.has_validation:  # The chief does not wait for an evaluator's.
            metrics.read_others(checkpoints.latest_step(job.config.output_place))
            validate()
        stop.check()
        if hook.judge():  # The last validation may have reached a goal, too.
            _note_the_end(job, hook.status)
    results.finish(job, guarded, metrics, hook.status, time.monotonic() - started)


def _note_the_end(job: Job, status: str) -> None:
    """Notes for other tasks that training is over at the newest checkpoint, and how it ended."""
    place = job.config.output_place
    last = checkpoints.latest_step(place)
    run_file.write_training(place, not job.has_evaluator, last, status)


def _train_with_chief(job: Job, guarded: Guard, stop: StopRequest) -> tuple[int, str]:
    """Trains as a worker; returns the number of steps that it took, and why it ends."""
    describe_training(job, 0, guarded.describe(job.params.examples_per_step))
    config = job.config
    # A worker that counts epochs may err: earlier steps may have had other numbers of images or, in
    # fp16, images without a step. If it leaves too early, a synchronous chief waits in vain for it.
    knows_last_step = config.train_epochs is None or (not config.sync and job.params.done.step > 0)
    epochs = job.params.total_epochs
    with ProgressLine(job.total_steps, epochs) as line:
        progress = Progress(line, config, job.num_examples, job.own_examples)
        ending = "training is over"
        hook = WorkerHook(job, stop, progress, knows_last_step)
        try:
            # Without max_steps: Estimator's hook for it would fetch the global step once more.
            make_trainer(job).train(lambda: training_input(job), [*guarded.hooks, hook])
        except TrainingOver as over:  # A session that was made anew found it so.
            ending = str(over)
    stop.check()
    return progress.steps, ending
