"""Training: train_and_evaluate from the last checkpoint to the last step, then the results."""

import dataclasses
import math
import time
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10 import models
from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import Stopped
from cifar10.host import activity, folder_lock
from cifar10.host.console import say
from cifar10.host.signals import StopRequest
from cifar10.input import pipeline
from cifar10.input.records import RecordSet, open_records
from cifar10.input.sample import sample_images
from cifar10.output import (
    checkpoints,
    metrics,
    recovery,
    report,
    run_status,
)
from cifar10.output.history import FILE_NAME, VALIDATION_FILE_NAME, History
from cifar10.output.progress.line import ProgressLine
from cifar10.output.unfinished import remove_unfinished
from cifar10.run import figures, goals, hyperparameters, init_checkpoint, results
from cifar10.run.hooks import training
from cifar10.run.hooks.duration import DurationHook, describe_amount
from cifar10.run.hooks.finite import FiniteLossHook, FiniteWeightsListener
from cifar10.run.hooks.goals import EvaluatorGoalHook, GoalHook
from cifar10.run.hooks.loading import LoadingHook
from cifar10.run.hooks.metrics import MetricsHook
from cifar10.run.hooks.profile import ProfileHook, check_window
from cifar10.run.hooks.progress import ProgressHook
from cifar10.run.hooks.samples import SamplesHook
from cifar10.run.hooks.step_probe import ActivityHook, SavingListener, StepProbe
from cifar10.run.hooks.summaries import ResumeHook, SummaryHook, keep
from cifar10.run.hooks.validation import ValidationRecorder
from cifar10.run.job import (
    Job,
    evaluation_input,
    join_job,
    make_trainer,
    open_output,
    start_job,
    steps_of_cluster,
)
from cifar10.run.model_note import note_model
from cifar10.run.stall_watch import StallWatch, watch_for_stalls
from cifar10.run.tf_errors import clear_errors
from cifar10.schema import EVAL, TRAIN, VALIDATION
from cifar10.step.state import examples_seen


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
      cluster: the cluster whose master this process is; None: it trains alone.

    Raises:
      UserError: the data or the settings are wrong.
      TrainingError: training failed, or a task that is needed does not answer in time.
      Stopped: a signal arrived; if training had begun, a checkpoint has been saved.
    """
    records = open_records(config.data_place)
    for split in (TRAIN, EVAL):
        records.require(split)
    goals.check(config, records)
    open_output(config)
    places = (config.output_place, config.log_place)
    with folder_lock.hold(*places, folder_lock.TRAINING, stop.check) as check_owner:
        _train_and_evaluate(config, records, stop, started, cluster, check_owner)


def _train_and_evaluate(
    config: TrainConfig,
    records: RecordSet,
    stop: StopRequest,
    started: float,
    cluster: Optional[Cluster],
    check_owner: Callable[[], None],
) -> None:
    """Does the work of `train_and_evaluate` in folders that this process has locked."""
    remove_unfinished(config.output_place, config.log_place)
    checkpoint = recovery.checkpoint_to_continue(config.output_place, say)
    done = checkpoints.read_done(checkpoint)
    if cluster:
        total_steps = steps_of_cluster(config, cluster, records, done)
    else:
        total_steps = config.total_steps(records.counts[TRAIN], done=done)
    check_window(config, total_steps)
    start = None if checkpoint else init_checkpoint.read(config)
    unused = checkpoint and init_checkpoint.describe_unused(config, checkpoint)
    if unused:
        say(unused)
    ended = goals.ended_before(config, done.step)
    if cluster:
        # A master whose last step is saved needs no other task.
        trains = done.step < total_steps and not ended
        job = join_job(config, records, cluster, stop.check, done, trains)
    else:
        job = start_job(config, records, done)
    job = dataclasses.replace(job, ended_early=ended)
    if start:
        job = job.with_first_values(start.values)
        say(start.describe())
    try:
        note_model(job, checkpoint, start)
        if checkpoint is None:  # Not earlier: a run that is refused leaves all files as they are.
            recovery.set_older_aside(_files_of_a_run(config), say)
        _run_job(job, stop, started, checkpoint, cluster, check_owner)
    except Stopped:
        saved = checkpoints.latest(config.output_place)
        if saved:
            say(f"saved {saved}")  # The launcher reads this line.
        raise
    finally:
        job.close()


def _files_of_a_run(config: TrainConfig) -> list[str]:
    """Returns the paths of the files by which tasks know how a run went, but metrics.jsonl."""
    names = (results.RESULT_NAME, FILE_NAME, VALIDATION_FILE_NAME)
    return [
        *(tf.io.gfile.join(config.output_place, name) for name in names),
        tf.io.gfile.join(config.log_place, metrics.EVALUATOR_FILE_NAME),
    ]


def _run_job(
    job: Job,
    stop: StopRequest,
    started: float,
    checkpoint: Optional[str],
    cluster: Optional[Cluster],
    check_owner: Callable[[], None],
) -> None:
    """Trains from `checkpoint`, and sees to it that the figures exist at the end."""
    config, start_step = job.config, job.params.done.step
    if job.cluster_session:
        job.cluster_session.heed_signals(stop, lambda: job.activity.is_in_step)
    if (cluster and cluster.has_evaluator) or run_status.evaluator_is_here(config.output_place):
        job = dataclasses.replace(job, has_evaluator=True)
    is_over = start_step >= job.total_steps or job.ended_early is not None
    if is_over and results.is_finished(config, start_step):
        job.tell_end()
        say(results.describe_finished(config, job.ended_early))
        return
    # An evaluator has records of its own.
    validates = job.records.has_validation or job.has_evaluator
    recovery.settle_best(config.output_place, start_step, validates, say)
    with clear_errors(config):
        pipeline.check_evaluation(job.records)
        job = _with_values_from_data(job)
    say_what_trains(job, start_step)
    amount = None if is_over else describe_amount(job, start_step)
    if amount:
        say(amount)
    if job.has_evaluator:
        results.write_process(job)
    run_status.write(config.output_place, not job.has_evaluator)
    history = recovery.load_history(config.output_place, start_step, say)
    path = tf.io.gfile.join(config.log_place, metrics.FILE_NAME)
    history.metrics = recovery.load_metrics(path, checkpoint, start_step, say)
    hyperparameters.write(job)
    with ProgressLine(job.total_steps, job.params.total_epochs, start_step=start_step) as progress:
        run = _Run(job, stop, history, progress, started, check_owner)
        with run.stall_watch:
            run.train(checkpoint)
    job.activity.begin(None)  # The wait for an evaluator has a time limit of its own.
    with StallWatch(job.activity, config.stall_timeout):
        if not job.has_evaluator:
            results.finish(job, stop, history, run.outcome, time.monotonic() - started)
        elif not figures.wait_for_evaluator(job, stop, started):
            figures.make_instead_of_evaluator(job, stop, history, run.outcome, started)


def _with_values_from_data(job: Job) -> Job:
    """Adds the initial values that the model computes from the data, which only the chief needs.

    Those of --init-checkpoint include them.
    """
    if job.params.values_from_data:
        return job
    values = models.find(job.config.model).first_values(
        lambda count: sample_images(job.records, job.config.seed, count)
    )
    return job.with_first_values(values)


class _Run:
    """The training of one process: the hooks and specs for `tf.estimator.train_and_evaluate`."""

    def __init__(
        self,
        job: Job,
        stop: StopRequest,
        history: History,
        progress: ProgressLine,
        started: float,
        check_owner: Callable[[], None],
    ) -> None:
        self._check_owner = check_owner
        self._job, self._stop, self._history, self._progress = job, stop, history, progress
        self._samples = SamplesHook(job.config.log_folder(TRAIN))
        self._probe = StepProbe(job.activity)
        self.stall_watch = watch_for_stalls(job, self._probe)
        if job.cluster_session:
            job.cluster_session.watch_steps(job.activity)
        self._clock = training.StepClock(history.seconds)
        deadline = started + 60.0 * (job.config.max_minutes or math.inf)
        self._time_limit = training.TimeLimitHook(deadline, stop)
        self._recorder = ValidationRecorder(job, history, progress.message)
        if job.has_evaluator:
            self._goals = goals.of_evaluator(job.config)
        else:
            self._goals = goals.of_this_process(job.config, history)
        self._goals.ending = job.ended_early

    @property
    def outcome(self) -> str:
        """The status of result.json: how training ended."""
        if self._goals.ending:
            return self._goals.ending.status
        return "stopped by --max-minutes" if self._time_limit.reached else "completed"

    def train(self, checkpoint: Optional[str]) -> None:
        """Trains from `checkpoint` to the last step, with a validation after each checkpoint."""
        job = self._job
        self._validate_if_missing(checkpoint)
        with clear_errors(job.config):
            is_short = checkpoints.read_counter(checkpoint, "global_step") < job.total_steps
            if is_short and not job.ended_early:
                self._train_on()  # Says that training is over before the last validation.
            else:
                if job.ended_early:
                    self._progress.message(job.ended_early.line)
                self._say_that_training_is_over()
            self._validate_if_missing(checkpoints.latest(job.config.output_place))
        self._stop.check()

    def _train_on(self) -> None:
        job = self._job
        trainer = make_trainer(job)
        every = trainer.config.save_checkpoints_steps
        saver = training.SaverHook(trainer.model_dir, every, job.config.log_folder(TRAIN))
        listener = training.PauseListener(
            self._clock, self._keep, self._stop, saver, self._say_that_training_is_over
        )
        job.activity.begin(activity.START)
        spec = tf.estimator.TrainSpec(
            lambda: train_input(job),
            # The saver sees whether another hook before it ends training.
            hooks=[*self._train_hooks(), saver, *self._goal_hooks(after_save=True)],
            saving_listeners=[
                SavingListener(job.activity),
                training.OwnerListener(self._check_owner),
                FiniteWeightsListener(job),
                listener,
            ],
        )
        if job.validates:
            tf.estimator.train_and_evaluate(trainer, spec, self._eval_spec())
        else:
            trainer.train(
                spec.input_fn, list(spec.hooks), saving_listeners=list(spec.saving_listeners)
            )

    def _say_that_training_is_over(self) -> None:
        """Tells other tasks that training is over, unless a signal ends this run.

        It is called after the last checkpoint has been written.
        """
        if self._stop.requested:
            return
        config = self._job.config
        step = checkpoints.latest_step(config.output_place)
        run_status.write(config.output_place, not self._job.has_evaluator, step, self.outcome)
        self._job.tell_end()

    def _eval_spec(self) -> Any:
        return tf.estimator.EvalSpec(
            lambda: evaluation_input(self._job, VALIDATION),
            steps=None,
            name=VALIDATION,
            hooks=[
                training.StopEvaluationHook(self._stop),
                ActivityHook(self._job.activity),
            ],
            exporters=[self._recorder],
            start_delay_secs=0,
            throttle_secs=0,
        )

    def _keep(self) -> None:
        """Writes what was measured and seen up to a checkpoint to its files."""
        self._samples.write()
        keep(self._history, self._job.config.log_folder(TRAIN))

    def _train_hooks(self) -> list[Any]:
        config, job = self._job.config, self._job
        folder, steps = config.log_folder(TRAIN), config.steps_between_rows(job.total_steps)
        return [
            self._probe,
            training.EndAllHook(self._stop),
            FiniteLossHook(job),
            ResumeHook(config.output_place, folder, self._history),
            ProgressHook(self._progress, self._history, self._clock, job),
            DurationHook(self._progress.message, self._clock, job),
            MetricsHook(self._history, self._clock, job, steps),
            training.LastStepHook(job.total_steps),
            training.StopHook(self._stop),
            SummaryHook(steps, folder),
            self._samples,
            ProfileHook(config, self._progress.message),
            self._time_limit,
            LoadingHook(report.load),
            *self._goal_hooks(after_save=False),
        ]

    def _goal_hooks(self, after_save: bool) -> list[Any]:
        """Returns the hook that ends training at a goal, if it belongs in this place."""
        if not goals.are_set(self._job.config) or after_save == self._job.has_evaluator:
            return []
        if self._job.has_evaluator:
            return [EvaluatorGoalHook(self._goals, self._progress.message, self._stop)]
        return [GoalHook(self._goals, self._progress.message)]

    def _validate_if_missing(self, checkpoint: Optional[str]) -> None:
        """Validates a checkpoint if the run that saved it was killed before its validation."""
        if self._job.validates:
            self._recorder.validate_if_missing(checkpoint, self._stop)


def train_input(job: Job) -> Any:
    """Returns this process's batches, beginning with the first image that the job has not seen."""
    config, place = job.config, job.params.place
    settings = pipeline.TrainInput(
        batch_size=place.batch_size(config.train_batch_size),
        seed=config.seed,
        distort=config.use_distortion_for_training,
        crop_padding=config.crop_padding,
        crop_fill=config.crop_fill,
        flip=config.flip,
        cutout=config.cutout,
        # Read when a session begins, after a checkpoint has been restored.
        start=examples_seen(place.variable_devices[0]).read_value(),
        num_replicas=place.num_replicas,
        replica=place.replica,
    )
    return pipeline.training_batches(job.records, settings)


def say_what_trains(job: Job, start_step: int) -> None:
    """Prints which model is about to be trained, on which devices and data, up to which step."""
    records, config, place = job.records, job.config, job.params.place
    numbers = ", ".join(f"{count:,} {split}" for split, count in records.counts.items())
    say(f"{config.model_title}, {job.plan.summary}, batch {config.train_batch_size}")
    if job.cluster_session:
        say(job.cluster_session.describe(place))
    say(f"data: {records.manifest['source']['kind']}, {numbers} ({config.data_place})")
    verb = f"continuing at step {start_step:,}" if start_step else "training"
    say(f"{verb} to step {job.total_steps:,}; output: {config.output_place}")
    if job.plan.kernels_missing:
        say(f"convolutions are TensorFlow's: ours cannot be had, {job.plan.kernels_missing}")
