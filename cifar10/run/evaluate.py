"""Exact evaluation of one checkpoint on the eval split, with the probabilities of each image."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from cifar10.config.train_config import TrainConfig
from cifar10.host.files import require_writable
from cifar10.host.process import StopRequest, one_line, say
from cifar10.input.records import open_records
from cifar10.output import checkpoints, model_settings
from cifar10.output.event_files import take_back
from cifar10.run.hooks.validation import EvaluationHook
from cifar10.run.job import Job, evaluation_input, make_job
from cifar10.run.kept_evaluation import KeptEvaluation
from cifar10.schema import EVAL
from cifar10.step import model_fn


class Evaluation(NamedTuple):
    """A checkpoint's figures on the eval split.

    Attributes:
      checkpoint: the checkpoint's path.
      step: the checkpoint's global step.
      figures: `loss`, the mean cross-entropy in nats; `accuracy`, the share of images whose
        likeliest class is the true one; and `augmented_accuracy`, if there is augmentation.
      confusion_matrix: int64 [10, 10]; the rows are true classes, the columns predicted ones.
      images: uint8 [N, 32, 32, 3], in the order of the records.
      labels: the true classes, int64 [N].
      probabilities: float32 [N, 10].
    """

    checkpoint: str
    step: int
    figures: dict[str, float]
    confusion_matrix: Any
    images: Any
    labels: Any
    probabilities: Any

    def __str__(self) -> str:
        text = f"eval accuracy {self.figures['accuracy']:.4f} on {len(self.labels):,} images"
        if "augmented_accuracy" not in self.figures:
            return text
        return f"{text}, {self.figures['augmented_accuracy']:.4f} with test-time augmentation"


def evaluate_split(job: Job, checkpoint: str, stop: StopRequest) -> Evaluation:
    """Runs `checkpoint` over the eval split, with --test-time-augmentation over some views, too.

    Raises:
      DataError: records are damaged.
      Stopped: a signal arrived.
    """
    # A checkpoint may be evaluated again; its row in TensorBoard is the last one.
    step = checkpoints.read_counter(checkpoint, "global_step")
    take_back(job.config.log_folder(EVAL), step)
    evaluation = job.evaluation
    if job.config.test_time_augmentation:
        evaluation = KeptEvaluation(dataclasses.replace(job.params, augments_test=True))
    rows = (model_fn.IMAGES, model_fn.LABELS, model_fn.PROBABILITIES)
    hooks, data = [EvaluationHook(job.activity, stop)], evaluation_input
    found = evaluation.evaluate(lambda: data(job, EVAL), hooks, checkpoint, EVAL, rows=rows)
    found["loss"] = found["cross_entropy"]
    names = ("loss", "accuracy", "augmented_accuracy")
    figures = {name: float(found[name]) for name in names if name in found}
    return Evaluation(
        checkpoint, step, figures, *(found[one] for one in (model_fn.CONFUSION, *rows))
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
    job = make_job(config, records)
    checkpoints.find(place, given)  # Without one, this mode writes nothing.
    require_writable(
        config.log_folder(EVAL), "the folder for event files", "name another one by --log-dir"
    )
    result = checkpoints.with_found(place, given, lambda one: evaluate_split(job, one, stop))
    say(f"{config.model_title}, {result.checkpoint}, {job.params.plan.summary}")
    matrix = result.confusion_matrix
    for name, right, total in zip(records.class_names, np.diag(matrix), matrix.sum(axis=1)):
        share = f"{right / total:.4f}" if total else "no images"
        say(f"  {one_line(name):<10}  {share}")
    say(f"{result}, loss {result.figures['loss']:.4f} at step {result.step:,}")
