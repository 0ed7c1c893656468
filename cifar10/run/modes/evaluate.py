"""Exact evaluation of one checkpoint on a whole split, with the probabilities of each image."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.host.console import one_line, say
from cifar10.host.files import require_writable
from cifar10.host.signals import StopRequest
from cifar10.input.records import open_records
from cifar10.output import checkpoints, model_settings
from cifar10.run.hooks import summaries
from cifar10.run.hooks.step_probe import EvaluationHook
from cifar10.run.job import Job, evaluation_input, make_estimator, start_job
from cifar10.run.tf_errors import clear_errors
from cifar10.schema import EVAL
from cifar10.step import model_fn
from cifar10.tf_internals.kept_evaluation import KeptEvaluation


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A checkpoint's figures on one split.

    Attributes:
      checkpoint: the checkpoint's path.
      step: the checkpoint's global step.
      accuracy: the share of images whose likeliest class is the true one.
      loss: the mean cross-entropy in nats.
      confusion_matrix: int64 [10, 10]; the rows are true classes, the columns predicted ones.
      images: uint8 [N, 32, 32, 3], in the order of the records.
      labels: the true classes, int64 [N].
      probabilities: float32 [N, 10].
      augmented_accuracy: the accuracy with test-time augmentation; None without it.
    """

    checkpoint: str
    step: int
    accuracy: float
    loss: float
    confusion_matrix: Any
    images: Any
    labels: Any
    probabilities: Any
    augmented_accuracy: Optional[float] = None

    @property
    def count(self) -> int:
        """The number of images that were evaluated."""
        return len(self.labels)


class CollectHook(tf.train.SessionRunHook):
    """Keeps each batch's images, labels and probabilities.

    Attributes:
      batches: one dict of arrays per batch.
    """

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run."""
        names = (model_fn.IMAGES, model_fn.LABELS, model_fn.PROBABILITIES)
        graph = tf.get_default_graph()
        self._fetches = {name: graph.get_tensor_by_name(f"{name}:0") for name in names}

    def before_run(self, run_context: Any) -> Any:
        """Requests images, labels and probabilities of the batch."""
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keeps the batch."""
        self.batches.append(run_values.results)


def evaluate_split(job: Job, split: str, checkpoint: str, stop: StopRequest) -> Evaluation:
    """Runs `checkpoint` over every image of `split`, with --test-time-augmentation over some views.

    Raises:
      DataError: records are damaged.
      Stopped: a signal arrived.
    """
    collect = CollectHook()
    with _evaluation_of(job) as kept, clear_errors(job.config):
        # A checkpoint may be evaluated again; its row in TensorBoard is the last one.
        step = checkpoints.read_counter(checkpoint, "global_step")
        summaries.take_back(job.config.log_folder(split), step)
        metrics = kept.evaluate(
            lambda: evaluation_input(job, split),
            hooks=[
                collect,
                EvaluationHook(job.activity, stop),
                *job.evaluation_hooks,
            ],
            checkpoint_path=checkpoint,
            name=split,
        )
    summaries.add_confusion_matrix(
        job.config.log_folder(split), step, metrics[model_fn.CONFUSION], job.class_names
    )
    joined = {
        name: np.concatenate([batch[name] for batch in collect.batches])
        for name in (model_fn.IMAGES, model_fn.LABELS, model_fn.PROBABILITIES)
    }
    augmented = metrics.get("augmented_accuracy")
    return Evaluation(
        checkpoint=checkpoint,
        step=int(metrics["global_step"]),
        accuracy=float(metrics["accuracy"]),
        loss=float(metrics["cross_entropy"]),
        confusion_matrix=metrics[model_fn.CONFUSION],
        images=joined[model_fn.IMAGES],
        labels=joined[model_fn.LABELS],
        probabilities=joined[model_fn.PROBABILITIES],
        augmented_accuracy=None if augmented is None else float(augmented),
    )


@contextlib.contextmanager
def _evaluation_of(job: Job) -> Iterator[KeptEvaluation]:
    """Yields the job's evaluation, or one with test-time augmentation, closed at the end."""
    if not job.config.test_time_augmentation:
        yield job.evaluation
        return
    params = dataclasses.replace(job.params, augments_test=True)
    estimator = make_estimator(params, job.estimator.config)
    with contextlib.closing(KeptEvaluation(estimator, job.config.log_folder)) as kept:
        yield kept


def evaluate(config: TrainConfig, stop: StopRequest) -> None:
    """Runs the mode: prints accuracy and loss of a checkpoint on the eval split.

    Raises:
      ConfigError: the records have other classes than the model, or TensorBoard's event files
        cannot be written.
      DataError: records are missing or damaged.
      UserError: there is no complete checkpoint.
      Stopped: a signal arrived.
    """
    records = open_records(config.data_place)
    records.require(EVAL)
    model_settings.check_classes(config, records.manifest["class_names"])
    with contextlib.closing(start_job(config, records)) as job:
        checkpoints.find(config)  # Without one, this mode writes nothing.
        require_writable(
            config.log_folder(EVAL), "the folder for event files", "name another one by --log-dir"
        )
        result = checkpoints.with_found(config, lambda one: evaluate_split(job, EVAL, one, stop))
    correct = np.diag(result.confusion_matrix)
    say(f"{job.config.model_title}, {result.checkpoint}, {job.plan.summary}")
    for name, right, total in zip(job.class_names, correct, result.confusion_matrix.sum(axis=1)):
        share = f"{right / total:.4f}" if total else "no images"
        say(f"  {one_line(name):<10}  {share}")
    say(
        f"eval accuracy {result.accuracy:.4f}, loss {result.loss:.4f} on {result.count:,} images "
        f"at step {result.step:,}{describe_augmented(result)}"
    )


def describe_augmented(evaluation: Evaluation) -> str:
    """Returns `, 0.9081 with test-time augmentation`, or an empty string without it."""
    accuracy = evaluation.augmented_accuracy
    return "" if accuracy is None else f", {accuracy:.4f} with test-time augmentation"
