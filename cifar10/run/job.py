"""Jobs: a configuration with its records and model parameters, as a run needs them."""

import dataclasses
from typing import Any, Optional

from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import START, TrainConfig, TrainingPosition
from cifar10.host.process import log
from cifar10.input import pipeline
from cifar10.input.records import RecordSet
from cifar10.output import model_settings
from cifar10.schema import TRAIN
from cifar10.step.devices import plan_devices, use_devices
from cifar10.step.params import ModelParams, Replication, replicas_to_aggregate


@dataclasses.dataclass(frozen=True)
class Job:
    """What one process trains or evaluates.

    Attributes:
      config: the settings.
      records: the records of the data set.
      params: the parameters of the model_fn.
      cluster: the cluster, with the task of this process; None: it works alone.
      has_evaluator: whether a separate process validates.
    """

    config: TrainConfig
    records: RecordSet
    params: ModelParams
    cluster: Optional[Cluster] = None
    has_evaluator: bool = False


def make_job(
    config: TrainConfig,
    records: RecordSet,
    position: TrainingPosition = START,
    cluster: Optional[Cluster] = None,
) -> Job:
    """Chooses the devices, uses them, and derives what the model needs of records and cluster.

    Args:
      config: the settings.
      records: the records of the data set.
      position: how far training had come.
      cluster: the cluster in which this process trains; None: it trains alone.

    Raises:
      ConfigError: the machine does not fit the settings.
    """
    plan = plan_devices(config, cluster.host_share) if cluster else plan_devices(config)
    use_devices(plan.session_config, plan.gpus)
    params = ModelParams(
        config,
        plan,
        records.counts.get(TRAIN, 1),
        last_step(config, cluster, records, position),
        channels=records.channels,
        replication=Replication.of(config, cluster, plan),
        num_classes=len(records.class_names),
        position=position,
    )
    return Job(config, records, params, cluster)


def load_model(config: TrainConfig) -> tuple[ModelParams, tuple[str, ...]]:
    """Returns parameters and class names of a checkpoint's model, and applies its devices.

    Raises:
      ConfigError: a flag contradicts the checkpoint's run, or the machine does not fit.
    """
    config, class_names = model_settings.apply(config)
    plan = plan_devices(config)
    use_devices(plan.session_config, plan.gpus)
    return ModelParams(config, plan, num_classes=len(class_names)), class_names


def last_step(
    config: TrainConfig, cluster: Optional[Cluster], records: RecordSet, position: TrainingPosition
) -> int:
    """Returns the global step at which training ends, without any other task of the cluster.

    Args:
      config: the settings.
      cluster: the addresses of all tasks; None: this process trains alone.
      records: the records of the data set.
      position: how far training had come.
    """
    batches = 1  # in a global step
    if cluster:
        in_graph = config.replication == "in-graph"
        batches = cluster.num_trainers if in_graph else replicas_to_aggregate(config, cluster) or 1
    num_examples = records.counts.get(TRAIN, 1)  # An evaluator may have no training images.
    return config.total_steps(num_examples, config.train_batch_size * batches, position)


def evaluation_input(job: Job, split: str) -> Any:
    """Returns a data set of every image of `split` once, in batches of --eval-batch-size."""
    return pipeline.evaluation_batches(job.records, split, job.config.eval_batch_size)


def describe_training(job: Job, cluster: Optional[str] = None, is_over: bool = False) -> None:
    """Prints which model is about to be trained, on which devices and data, up to which step.

    Args:
      job: the job that is about to be trained.
      cluster: a line about the cluster; None: this process trains alone.
      is_over: whether nothing is left to train, only results to make.
    """
    records, config, plan = job.records, job.config, job.params.plan
    numbers = ", ".join(f"{count:,} {split}" for split, count in records.counts.items())
    log(f"{config.model_title}, {plan.summary}, batch {config.train_batch_size}")
    if cluster:
        log(cluster)
    log(f"data: {records.manifest['source']['kind']}, {numbers} ({config.data_path})")
    step, verb = job.params.position.step, "training"
    if step:
        verb = "already trained" if is_over else f"continuing at step {step:,}"
    last_step = step if is_over else job.params.total_steps
    log(f"{verb} to step {last_step:,}; output: {config.output_path}")
    if plan.kernels_missing:
        log(f"convolutions are TensorFlow's: ours are not available, {plan.kernels_missing}")
