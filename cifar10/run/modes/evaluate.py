"""Exact evaluation of one checkpoint on the eval split, with the probabilities of each image."""

import contextlib
import dataclasses
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.host.files import require_writable
from cifar10.host.process import StopRequest, one_line, say
from cifar10.input.records import open_records
from cifar10.output import checkpoints, model_settings
from cifar10.run.hooks.progress import add_confusion_matrix, take_back
from cifar10.run.hooks.validation import EvaluationHook
from cifar10.run.job import Job, evaluation_input, make_evaluation, start_job
from cifar10.schema import EVAL
from cifar10.step import model_fn

# Names of the tensors with what belongs to each image.
_OF_IMAGES = (model_fn.IMAGES, model_fn.LABELS, model_fn.PROBABILITIES)


class Evaluation(NamedTuple):
    """A checkpoint's figures on the eval split.

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


class CollectHook(tf.train.SessionRunHook):
    """Keeps each batch's images, labels and probabilities.

    Attributes:
      batches: one dict of arrays per batch.
    """

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run."""
        graph = tf.get_default_graph()
        self._fetches = {name: graph.get_tensor_by_name(f"{name}:0") for name in _OF_IMAGES}

    def before_run(self, run_context: Any) -> Any:
        """Requests images, labels and probabilities of the batch."""
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keeps the batch."""
        self.batches.append(run_values.results)


def evaluate_split(job: Job, checkpoint: str, stop: StopRequest) -> Evaluation:
    """Runs `checkpoint` over the eval split, with --test-time-augmentation over some views, too.

    Raises:
      DataError: records are damaged.
      Stopped: a signal arrived.
    """
    collect, folder = CollectHook(), job.config.log_folder(EVAL)
    # A checkpoint may be evaluated again; its row in TensorBoard is the last one.
    step = checkpoints.read_counter(checkpoint, "global_step")
    take_back(folder, step)
    with contextlib.ExitStack() as stack:
        evaluation = job.evaluation
        if job.config.test_time_augmentation:
            augmented = dataclasses.replace(job.params, augments_test=True)
            evaluation = stack.enter_context(contextlib.closing(make_evaluation(augmented)))
        figures = evaluation.evaluate(
            lambda: evaluation_input(job, EVAL),
            hooks=[collect, EvaluationHook(job.activity, stop)],
            checkpoint_path=checkpoint,
            name=EVAL,
        )
    add_confusion_matrix(folder, step, figures[model_fn.CONFUSION], job.class_names)
    images, labels, probabilities = (
        np.concatenate([batch[name] for batch in collect.batches]) for name in _OF_IMAGES
    )
    return Evaluation(
        checkpoint,
        step,
        float(figures["accuracy"]),
        float(figures["cross_entropy"]),
        figures[model_fn.CONFUSION],
        images,
        labels,
        probabilities,
        float(figures["augmented_accuracy"]) if "augmented_accuracy" in figures else None,
    )


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
    place, given = config.output_place, config.checkpoint_place
    model_settings.check_classes(config, records.class_names)
    config, _ = model_settings.apply(config)
    with contextlib.closing(start_job(config, records)) as job:
        checkpoints.find(place, given)  # Without one, this mode writes nothing.
        require_writable(
            config.log_folder(EVAL), "the folder for event files", "name another one by --log-dir"
        )
        result = checkpoints.with_found(place, given, lambda one: evaluate_split(job, one, stop))
    correct = np.diag(result.confusion_matrix)
    say(f"{job.config.model_title}, {result.checkpoint}, {job.params.plan.summary}")
    for name, right, total in zip(job.class_names, correct, result.confusion_matrix.sum(axis=1)):
        share = f"{right / total:.4f}" if total else "no images"
        say(f"  {one_line(name):<10}  {share}")
    say(
        f"eval accuracy {result.accuracy:.4f}, loss {result.loss:.4f} on "
        f"{len(result.labels):,} images at step {result.step:,}{describe_augmented(result)}"
    )


def describe_augmented(evaluation: Evaluation) -> str:
    """Returns `, 0.9081 with test-time augmentation`, or an empty string without it."""
    accuracy = evaluation.augmented_accuracy
    return "" if accuracy is None else f", {accuracy:.4f} with test-time augmentation"
