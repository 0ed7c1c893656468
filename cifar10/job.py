"""What every mode needs: the Estimator for a configuration, on this machine, for these records."""

import dataclasses
import math
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10 import input_pipeline, model_note
from cifar10.config import TrainConfig
from cifar10.devices import DevicePlan, plan_devices, size_thread_pools
from cifar10.errors import ConfigError
from cifar10.model_fn import ModelParams, model_fn
from cifar10.records import RecordSet
from cifar10.schema import CLASS_NAMES, TRAIN


@dataclasses.dataclass(frozen=True)
class Job:
    """A configuration made concrete."""

    config: TrainConfig
    plan: DevicePlan
    params: ModelParams
    estimator: Any  # tf.estimator.Estimator
    class_names: tuple[str, ...]
    given_records: Optional[RecordSet] = None

    @property
    def records(self) -> RecordSet:
        """The data; only the modes that read any may ask."""
        if self.given_records is None:
            raise ValueError("this job was made without records")
        return self.given_records

    @property
    def num_examples(self) -> int:
        """Images in the training split."""
        return self.params.num_examples

    @property
    def total_steps(self) -> int:
        """Global step at which training ends."""
        return self.params.total_steps


def make_job(config: TrainConfig, records: Optional[RecordSet] = None) -> Job:
    """Plans the devices and makes the Estimator.

    Args:
      config: the settings; outside training, the model's come from the output folder.
      records: the data, where the mode reads any.

    Raises:
      ConfigError: the machine does not fit the settings.
    """
    plan = plan_devices(config)
    class_names = CLASS_NAMES if records is None else tuple(records.manifest["class_names"])
    if config.mode != "train_and_evaluate":
        config, class_names = model_note.apply(config)
    params = ModelParams(config, plan)
    if records is not None:
        num_examples = records.counts.get(TRAIN, 1)
        params = ModelParams(
            config,
            plan,
            num_examples,
            config.total_steps(num_examples),
            records.channel_mean,
            records.channel_deviation,
        )
    run_config = tf.estimator.RunConfig(
        model_dir=config.output_place,
        tf_random_seed=config.seed,
        session_config=plan.session_config,
        save_checkpoints_steps=checkpoint_steps(config, params.num_examples),
        keep_checkpoint_max=config.keep_checkpoints,
        # Our hooks do what these would do, to --log-dir.
        save_summary_steps=0,
        log_step_count_steps=None,
        # The graph is made from code whenever it is needed; a checkpoint holds the values.
        checkpoint_save_graph_def=False,
    )
    estimator = tf.estimator.Estimator(model_fn, config=run_config, params=params)
    return Job(config, plan, params, estimator, class_names, records)


def start_job(config: TrainConfig, records: Optional[RecordSet] = None) -> Job:
    """Makes the job that this process is for; as `make_job`, and sizes the thread pools."""
    job = make_job(config, records)
    size_thread_pools(job.plan.session_config)
    return job


def evaluation_input(job: Job, split: str) -> Any:
    """Every image of `split` once, in batches of --eval-batch-size."""
    return input_pipeline.evaluation_batches(job.records, split, job.config.eval_batch_size)


def checkpoint_steps(config: TrainConfig, num_examples: int) -> int:
    """Steps between checkpoints: as asked, or about an epoch, so that the last one is the end."""
    if config.checkpoint_steps is not None:
        return config.checkpoint_steps
    total_steps = config.total_steps(num_examples)
    epochs = max(1, round(total_steps / config.steps_per_epoch(num_examples)))
    return math.ceil(total_steps / epochs)


def open_output(config: TrainConfig) -> None:
    """Makes the output and log folders.

    Raises:
      ConfigError: they cannot be made or written to.
    """
    for flag, path in (("--output-dir", config.output_place), ("--log-dir", config.log_place)):
        probe = tf.io.gfile.join(path, ".write-probe")
        try:
            tf.io.gfile.makedirs(path)
            with tf.io.gfile.GFile(probe, "w") as file:
                file.write("")
            tf.io.gfile.remove(probe)
        except tf.errors.OpError as error:
            raise ConfigError(f"{flag} {path} cannot be written to: {error.message}") from error
