"""Jobs: a configuration with its records, model parameters and evaluation, as a run needs them."""

import contextlib
import dataclasses
import math
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import NOTHING_DONE, Done, TrainConfig
from cifar10.host.activity import Activity
from cifar10.host.files import require_writable
from cifar10.host.process import say
from cifar10.input import pipeline
from cifar10.input.records import RecordSet
from cifar10.run.cluster_session import ClusterSession, replicas_to_aggregate
from cifar10.run.kept_evaluation import KeptEvaluation
from cifar10.run.watchdog import Progress, Watchdog
from cifar10.schema import TRAIN
from cifar10.step.devices import plan_devices, use_devices
from cifar10.step.model_fn import model_fn
from cifar10.step.params import ModelParams
from cifar10.step.state import examples_seen

MOST_CHECKPOINTS = 500  # of a run without --checkpoint-steps


@dataclasses.dataclass(frozen=True)
class Job:
    """A configuration with what was made from it."""

    config: TrainConfig
    records: RecordSet
    params: ModelParams
    evaluation: KeptEvaluation  # the graph and session in which this process evaluates
    watchdog: Watchdog  # of this process
    cluster_session: Optional[ClusterSession] = None  # None: this process trains alone
    has_evaluator: bool = False  # whether a separate process validates

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

    @property
    def num_examples(self) -> int:
        """The number of images in the training split."""
        return self.params.num_examples

    @property
    def total_steps(self) -> int:
        """The global step at which training ends."""
        return self.params.total_steps

    def watch_progress(self) -> contextlib.AbstractContextManager[None]:
        """Ends this process if it makes no progress, for a `with` statement."""
        session, progress = self.cluster_session, Progress(self.watchdog, self.config.stall_timeout)
        if session:
            progress.trainers = [one.label for one in session.cluster.trainers]
            progress.replica, progress.hears_all = self.params.place.replica, session.hears_all
        return self.watchdog.watching(progress)

    def tell_end(self) -> None:
        """Tells the cluster, if there is one, that training is over."""
        if self.cluster_session:
            self.cluster_session.tell_end()

    def close(self) -> None:
        """Ends what this process still does for the cluster."""
        if self.cluster_session:
            self.cluster_session.close()


def make_job(
    config: TrainConfig,
    records: RecordSet,
    done: Done = NOTHING_DONE,
    session: Optional[ClusterSession] = None,
) -> Job:
    """Chooses the devices, and derives what the model needs of the records and of the cluster.

    Args:
      config: the settings.
      records: the records of the data set.
      done: the training before.
      session: the cluster's session of a trainer, which knows its devices; None: it trains alone,
        and this process uses the devices that are chosen.

    Raises:
      ConfigError: the machine does not fit the settings.
    """
    plan = session.plan if session else plan_devices(config)
    if not session:
        use_devices(plan.session_config, plan.gpus)
    params = ModelParams(
        config,
        plan,
        records.counts.get(TRAIN, 1),
        last_step(config, session.cluster if session else None, records, done),
        channel_mean=records.channel_mean,
        channel_std=records.channel_std,
        replication=session.place if session else None,
        num_classes=len(records.class_names),
        done=done,
    )
    watchdog = session.watchdog if session else Watchdog()
    return Job(config, records, params, KeptEvaluation(params), watchdog, session)


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
    batches = 1  # in a global step
    if cluster:
        in_graph = config.replication == "in-graph"
        batches = cluster.num_trainers if in_graph else replicas_to_aggregate(config, cluster) or 1
    num_examples = records.counts.get(TRAIN, 1)  # An evaluator may have no training images.
    return config.total_steps(num_examples, config.train_batch_size * batches, done)


def make_trainer(job: Job) -> Any:
    """Makes the Estimator that trains, in a cluster if the job has one.

    Its settings of the cluster are not for the evaluations in this process, which are those of
    `Job.evaluation`.
    """
    config, params = job.config, job.params
    settings = {
        "model_dir": config.output_place,
        "tf_random_seed": config.seed,
        # Our own hooks save, and write summaries and speed to --log-dir.
        "save_checkpoints_secs": None,
        "save_summary_steps": 0,
        "log_step_count_steps": None,
    }
    if job.cluster_session:
        run_config = job.cluster_session.run_config(**settings)
    else:
        run_config = tf.estimator.RunConfig(session_config=params.plan.session_config, **settings)
    return tf.estimator.Estimator(model_fn, config=run_config, params=params)


def checkpoint_steps(config: TrainConfig, params: ModelParams) -> int:
    """Returns the steps between checkpoints: --checkpoint-steps, by default about an epoch.

    The default divides the run into about equal parts, one per epoch, but MOST_CHECKPOINTS at most:
    epochs of few images take less time than a checkpoint and its validation.
    """
    if config.checkpoint_steps is not None:
        return config.checkpoint_steps
    epochs = max(1, round(params.total_steps * params.examples_per_step / params.num_examples))
    return math.ceil(params.total_steps / min(epochs, MOST_CHECKPOINTS))


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


def open_output(config: TrainConfig) -> None:
    """Makes the output and log folders, and tries to write to them.

    Raises:
      ConfigError: one cannot be made or written to.
    """
    require_writable(config.output_place, "--output-dir")
    require_writable(config.log_place, "--log-dir")


def describe_training(job: Job, start_step: int) -> None:
    """Prints which model is about to be trained, on which devices and data, up to which step.

    Args:
      job: the job that is about to be trained.
      start_step: the global step from which it continues.
    """
    records, config, plan = job.records, job.config, job.params.plan
    numbers = ", ".join(f"{count:,} {split}" for split, count in records.counts.items())
    say(f"{config.model_title}, {plan.summary}, batch {config.train_batch_size}")
    if job.cluster_session:
        say(job.cluster_session.describe(job.params.examples_per_step))
    say(f"data: {records.manifest['source']['kind']}, {numbers} ({config.data_place})")
    verb = f"continuing at step {start_step:,}" if start_step else "training"
    say(f"{verb} to step {job.total_steps:,}; output: {config.output_place}")
    if plan.kernels_missing:
        say(f"convolutions are TensorFlow's: ours cannot be had, {plan.kernels_missing}")
