"""Jobs: a configuration with its devices, records and Estimator, as every mode needs them."""

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10 import models
from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import NOTHING_DONE, Done, TrainConfig
from cifar10.host.activity import Activity
from cifar10.host.console import say
from cifar10.host.files import require_writable
from cifar10.host.signals import Stay, StopRequest
from cifar10.input import pipeline
from cifar10.input.pipeline import sample_images
from cifar10.input.records import RecordSet
from cifar10.output import model_settings
from cifar10.output.checkpoints import BEST_DIR
from cifar10.run.cluster_session import ClusterSession
from cifar10.run.cluster_training import terms
from cifar10.run.kept_evaluation import KeptEvaluation
from cifar10.run.tf_errors import clear_errors
from cifar10.run.watchdog import Progress, StepProbe, Watchdog
from cifar10.schema import CLASS_NAMES, EVAL, TRAIN, VALIDATION
from cifar10.step.devices import DevicePlan, plan_devices, use_devices
from cifar10.step.model_fn import model_fn
from cifar10.step.params import ModelParams
from cifar10.step.state import examples_seen

EXPORT_DIR = "export"
_MUCH = 1_000_000  # images; fewer take minutes, unless the network is large
MOST_CHECKPOINTS = 500  # of a run without --checkpoint-steps


@dataclasses.dataclass(frozen=True)
class Job:
    """A configuration with what was made from it: devices, parameters, evaluation."""

    config: TrainConfig
    plan: DevicePlan
    params: ModelParams
    evaluation: KeptEvaluation  # the graph and session in which this process evaluates
    class_names: tuple[str, ...]
    given_records: Optional[RecordSet] = None
    cluster_session: Optional[ClusterSession] = None  # None: this process trains alone
    has_evaluator: bool = False  # whether a separate process validates
    watchdog: Watchdog = dataclasses.field(default_factory=Watchdog)  # of this process

    @property
    def records(self) -> RecordSet:
        """The records, in modes that read any; in others, this raises ValueError."""
        if self.given_records is None:
            raise ValueError("this job was made without records")
        return self.given_records

    @property
    def validates(self) -> bool:
        """Whether this process validates its checkpoints, instead of an evaluator."""
        return self.records.has_validation and not self.has_evaluator

    @property
    def activity(self) -> Activity:
        """What the main thread of this process does."""
        return self.watchdog.activity

    @property
    def own_examples(self) -> Optional[int]:
        """The number of images that this process uses per step; None if it trains alone."""
        place = self.params.place
        return place.batch_size(self.config.train_batch_size) if place.num_replicas > 1 else None

    def with_first_values(self, values: Mapping[str, Any]) -> "Job":
        """Returns a job whose variables start from these arrays, by the variable's name."""
        params = dataclasses.replace(self.params, values_from_data=values)
        return dataclasses.replace(self, params=params)

    def stay_for_the_master(self, stop: StopRequest) -> Optional[Stay]:
        """Returns how long this worker keeps training for its master after a signal."""
        return self.cluster_session.stay_for_the_master(stop) if self.cluster_session else None

    def watch_progress(
        self, probe: Optional[StepProbe] = None
    ) -> contextlib.AbstractContextManager[None]:
        """Ends this process if it makes no progress, for a `with` statement.

        Args:
          probe: looks into the steps of training; None: nothing is trained meanwhile.
        """
        noted, timeout_secs = self.activity, self.config.stall_timeout
        progress = Progress(noted, timeout_secs, probe)
        if probe and self.cluster_session:
            session = self.cluster_session
            labels = [one.label for one in session.cluster.trainers]
            replica = self.params.place.replica
            progress = Progress(noted, timeout_secs, probe, labels, replica, session.hears_all)
        return self.watchdog.watching(progress)

    def tell_end(self) -> None:
        """Tells the cluster, if there is one, that this process has stopped training."""
        if self.cluster_session:
            self.cluster_session.tell_end()

    def close(self) -> None:
        """Ends evaluation, and what this process still does for the cluster."""
        self.evaluation.close()
        if self.cluster_session:
            self.cluster_session.close()

    @property
    def num_examples(self) -> int:
        """The number of images in the training split."""
        return self.params.num_examples

    @property
    def total_steps(self) -> int:
        """The global step at which training ends."""
        return self.params.total_steps


def make_job(
    config: TrainConfig,
    records: Optional[RecordSet] = None,
    done: Done = NOTHING_DONE,
    session: Optional[ClusterSession] = None,
) -> Job:
    """Plans the devices, and derives what the model needs of the records and of the cluster.

    Args:
      config: the settings; except in training, the model's settings come from the output folder.
      records: the records; None in modes that read none.
      done: the training before.
      session: the cluster's session of a trainer, which knows its devices; None: it trains alone.

    Raises:
      ConfigError: the machine does not fit the settings.
    """
    class_names = CLASS_NAMES if records is None else records.class_names
    if config.mode != "train_and_evaluate":
        config, class_names = model_settings.apply(config)
    plan = session.plan if session else plan_devices(config)
    replication = session.replication() if session else None
    params = ModelParams(config, plan, replication=replication, num_classes=len(class_names))
    if records is not None:
        num_examples = records.counts.get(TRAIN, 1)
        params = dataclasses.replace(
            params,
            num_examples=num_examples,
            total_steps=config.total_steps(num_examples, params.examples_per_step, done),
            done=done,
            channel_mean=records.channel_mean,
            channel_deviation=records.channel_deviation,
        )
    watchdog = session.watchdog if session else Watchdog()
    evaluation = make_evaluation(params)
    return Job(config, plan, params, evaluation, class_names, records, session, watchdog=watchdog)


def start_job(
    config: TrainConfig, records: Optional[RecordSet] = None, done: Done = NOTHING_DONE
) -> Job:
    """Makes the job as `make_job` does, and applies its choice of devices to this process."""
    job = make_job(config, records, done)
    use_devices(job.plan.session_config, job.plan.gpus)
    return job


def join_job(
    config: TrainConfig,
    records: RecordSet,
    cluster: Cluster,
    check: Callable[[], None],
    done: Done = NOTHING_DONE,
    trains: bool = True,
) -> Job:
    """Makes the job of a cluster's trainer: starts its server and waits for the tasks it needs.

    Args:
      config: the settings.
      records: the records of the data set.
      cluster: the addresses of all tasks, and which task this process is.
      check: a function that is called repeatedly; it raises an exception to end the waiting.
      done: the training before, if this process knows it.
      trains: whether there is anything left to train; otherwise no other task is needed.

    Raises:
      ConfigError: the machine does not fit the settings.
      TrainingError: a task that is needed does not answer in time.
    """
    plan = plan_devices(config, cluster.host_share)
    use_devices(plan.session_config, plan.gpus)
    session = ClusterSession(config, cluster, plan, trains, terms(config, records))
    session.join(check)
    return make_job(config, records, done, session)


def make_evaluation(params: ModelParams) -> KeptEvaluation:
    """Returns the evaluations of a model in this process; `close` frees their memory."""
    place, devices = params.config.output_place, params.plan.session_config
    run_config = tf.estimator.RunConfig(model_dir=place, session_config=devices)
    estimator = tf.estimator.Estimator(model_fn, config=run_config, params=params)
    return KeptEvaluation(estimator, params.config.log_folder)


def last_step(
    config: TrainConfig, cluster: Optional[Cluster], records: RecordSet, done: Done
) -> int:
    """Returns the global step at which training ends, without any other task of the cluster.

    Args:
      config: the settings.
      cluster: the addresses of all tasks; None: this process trains alone.
      records: the records of the data set.
      done: the training before.
    """
    updates_together = 1
    if cluster and config.replication == "in-graph":
        updates_together = cluster.num_trainers
    elif cluster and config.sync:
        updates_together = config.replicas_to_aggregate or cluster.num_trainers
    examples_per_step = config.train_batch_size * updates_together
    num_examples = records.counts.get(TRAIN, 1)  # An evaluator may have no training images.
    return config.total_steps(num_examples, examples_per_step, done)


def make_trainer(job: Job) -> Any:
    """Makes the Estimator that trains, in a cluster if the job has one.

    Its settings of the cluster are not for the evaluations in this process, which are those of
    `Job.evaluation`.

    Args:
      job: the job to train.
    """
    config, plan = job.config, job.plan
    settings = {
        "model_dir": config.output_place,
        "tf_random_seed": config.seed,
        # Our own hook saves, and writes summaries and speed to --log-dir.
        "save_checkpoints_secs": None,
        "save_summary_steps": 0,
        "log_step_count_steps": None,
    }
    if job.cluster_session:
        run_config = job.cluster_session.run_config(**settings)
    else:
        run_config = tf.estimator.RunConfig(session_config=plan.session_config, **settings)
    return tf.estimator.Estimator(model_fn, config=run_config, params=job.params)


def training_input(job: Job) -> Any:
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


def evaluation_input(job: Job, split: str) -> Any:
    """Returns a data set of every image of `split` once, in batches of --eval-batch-size."""
    return pipeline.evaluation_batches(job.records, split, job.config.eval_batch_size)


def with_values_from_data(job: Job) -> Job:
    """Adds the initial values that the model computes from the data, which only the chief needs.

    Those of --init-checkpoint include them. The splits for evaluation are read once, too, so that a
    damaged record is an error before the first step.
    """
    with clear_errors(job.config):
        pipeline.check_evaluation(job.records)
        if job.params.values_from_data:
            return job
        values = models.find(job.config.model).first_values(
            lambda count: sample_images(job.records, job.config.seed, count)
        )
    return job.with_first_values(values)


def checkpoint_steps(config: TrainConfig, params: ModelParams) -> int:
    """Returns the steps between checkpoints: --checkpoint-steps, by default about an epoch.

    The default divides the run into about equal parts, one per epoch, but MOST_CHECKPOINTS at most:
    epochs of few images take less time than a checkpoint and its validation.
    """
    if config.checkpoint_steps is not None:
        return config.checkpoint_steps
    epochs = max(1, round(params.total_steps * params.examples_per_step / params.num_examples))
    return math.ceil(params.total_steps / min(epochs, MOST_CHECKPOINTS))


def open_output(config: TrainConfig) -> None:
    """Makes the output and log folders, and tries to write to each that a run needs.

    Raises:
      ConfigError: one cannot be made or written to.
    """
    require_writable(config.output_place, "--output-dir")
    require_writable(config.log_place, "--log-dir")
    inner = [tf.io.gfile.join(config.output_place, name) for name in (BEST_DIR, EXPORT_DIR)]
    for folder in (*inner, *map(config.log_folder, (TRAIN, VALIDATION, EVAL))):
        if tf.io.gfile.exists(folder):
            require_writable(folder, "the folder")


def describe_amount(job: Job, start_step: int) -> Optional[str]:
    """Returns a line about a run that may take long, for its start; None for a short one.

    Only steps of this model on this machine can tell the time, so the line has no estimate.
    """
    steps = job.total_steps - start_step
    images = steps * job.params.examples_per_step
    if images < _MUCH or job.config.max_minutes is not None:
        return None
    return (
        f"{steps:,} steps are {images / job.num_examples:,.0f} epochs, or {images:,} images; how "
        "long they take on this machine is printed after the first steps"
    )


def describe_training(job: Job, start_step: int, says_amount: bool = False) -> None:
    """Prints which model is about to be trained, on which devices and data, up to which step.

    Args:
      job: the job that is about to be trained.
      start_step: the global step from which it continues.
      says_amount: whether to print the amount of a long run, too.
    """
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
    if says_amount and (amount := describe_amount(job, start_step)):
        say(amount)
