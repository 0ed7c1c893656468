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

import contextlib
import math
import time
from typing import Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import TrainingOver
from cifar10.host import activity, folder_lock
from cifar10.host.process import StopRequest, say
from cifar10.input.records import open_records
from cifar10.output import checkpoints, run_file
from cifar10.output.progress import ProgressLine
from cifar10.output.training_progress import Progress
from cifar10.run import results, resume
from cifar10.run.cluster_session import ClusterSession
from cifar10.run.job import (
    Job,
    checkpoint_steps,
    describe_training,
    evaluation_input,
    make_job,
    make_trainer,
    open_output,
    training_input,
)
from cifar10.run.resume import Start
from cifar10.run.training_hook import ChiefHook, Saving, WorkerHook
from cifar10.run.validation import EvaluationHook, KeepBest, StoppingCriteria, check_criteria
from cifar10.schema import EVAL, TRAIN, VALIDATION


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
    check_criteria(config, records)
    open_output(config)
    places = (config.output_place, config.log_place)
    with folder_lock.hold(*places, folder_lock.TRAINING, stop.check) as check_owner:  # One run.
        start = resume.find_start(config, records, cluster)  # Rules 1 and 3.
        with resume.joined(config, records, cluster, stop, start) as job:
            resume.note_model(job, start)  # Rule 2.
            finished = results.describe_finished(config.output_place, start.done.step)
            if start.is_over and finished:  # Rule 4.
                job.tell_end()
                say(finished)
                return
            _train_to_results(job, start, stop, started, check_owner)


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
        session = ClusterSession(config, cluster, records, stop)
        session.join(check)
        with contextlib.closing(make_job(config, records, done, session)) as job:
            steps, ending = _train_with_chief(job, session, stop)
    except TrainingOver as over:  # Before this worker had joined.
        ending = str(over)
    say(f"{cluster.label} ends: {ending}; it trained {steps:,} steps")


def _train_to_results(
    job: Job, start: Start, stop: StopRequest, started: float, check_owner: Callable[[], None]
) -> None:
    """Trains from `start`, and sees to it that the figures exist at the end."""
    job = resume.with_first_values(job, start)
    describe_training(job, start.done.step)
    metrics = resume.prepare_folder(job, start)  # Rule 3, of the curves.
    epochs = job.params.total_epochs
    with job.watch_progress():
        with ProgressLine(job.total_steps, epochs, start_step=start.done.step) as line:
            progress = Progress(line, job.config, job.num_examples, job.own_examples, metrics)
            deadline = started + 60.0 * (job.config.max_minutes or math.inf)
            hook = ChiefHook(job, stop, progress, deadline)
            saver = tf.train.CheckpointSaverHook(
                job.config.output_place,
                save_steps=checkpoint_steps(job.config, job.params),
                listeners=[Saving(hook, check_owner)],
                save_graph_def=False,
            )
            criteria = StoppingCriteria(job.config, lambda: hook.saved_step, line.message)
            best = KeepBest(job, metrics, line.message)
            estimator = make_trainer(job)
            train_spec = tf.estimator.TrainSpec(
                lambda: training_input(job), hooks=[hook, saver, criteria]
            )
            eval_spec = tf.estimator.EvalSpec(
                lambda: evaluation_input(job, VALIDATION),
                steps=None,
                name=VALIDATION,
                hooks=[EvaluationHook(job.activity, stop)],
                exporters=[best],
                start_delay_secs=0,
                throttle_secs=0,
            )
            if job.validates:  # A run may have been killed after it saved this checkpoint.
                best.validate(estimator, eval_spec, start.checkpoint)
                best.take_back(start.done.step + 1)
            if not criteria.is_reached() and not start.is_over:  # Rule 4.
                job.activity.begin(activity.START)
                if job.validates:
                    tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
                else:  # An evaluator validates, or there is nothing to validate on.
                    estimator.train(train_spec.input_fn, train_spec.hooks)
            stop.check()
            _note_the_end(job, (criteria.ending or hook).status)
            job.tell_end()
            if job.records.has_validation:  # The chief does not wait for an evaluator's.
                latest = checkpoints.latest(job.config.output_place)
                metrics.read_others(checkpoints.read_done(latest).step)
                best.validate(estimator, eval_spec, latest)
            stop.check()
            if criteria.is_reached():  # The last validation may have reached one, too.
                _note_the_end(job, (criteria.ending or hook).status)
        status = (criteria.ending or hook).status
        results.finish(job, stop, metrics, status, time.monotonic() - started)


def _note_the_end(job: Job, status: str) -> None:
    """Notes for other tasks that training is over at the newest checkpoint, and how it ended."""
    place = job.config.output_place
    last = checkpoints.latest_step(place)
    run_file.write_training(place, not job.has_evaluator, last, status)


def _train_with_chief(job: Job, session: ClusterSession, stop: StopRequest) -> tuple[int, str]:
    """Trains as a worker; returns the number of steps that it took, and why it ends."""
    describe_training(job, 0)
    config = job.config
    # A worker that counts epochs may err: earlier steps may have had other numbers of images or, in
    # fp16, images without a step. If it leaves too early, a synchronous chief waits in vain for it.
    knows_last_step = config.train_epochs is None or (not config.sync and job.params.done.step > 0)
    epochs = job.params.total_epochs
    with ProgressLine(job.total_steps, epochs) as line, job.watch_progress():
        progress = Progress(line, config, job.num_examples, job.own_examples)
        ending = "training is over"
        # An asynchronous chief needs nobody's gradients.
        needed = session.stay if config.sync else None
        hook = WorkerHook(job, stop, progress, needed, knows_last_step)
        try:
            # Without max_steps: Estimator's hook for it would fetch the global step once more.
            make_trainer(job).train(lambda: training_input(job), [hook])
        except TrainingOver as over:  # A session that was made anew found it so.
            ending = str(over)
    stop.check()
    return progress.steps, ending
