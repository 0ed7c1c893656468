"""Evaluates a checkpoint on the eval split; after training, export, result.json and report.html."""

import dataclasses
import datetime
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10 import guard, models
from cifar10.config.train_config import TrainConfig
from cifar10.errors import DamagedError
from cifar10.host.files import exists, read_json, require_writable, write_json, write_text
from cifar10.host.process import StopRequest, log, one_line
from cifar10.input.records import open_records
from cifar10.optim.schedules import highest_rate, warmup_steps
from cifar10.output import checkpoints, event_files, model_settings
from cifar10.output.folders import EVENTS
from cifar10.output.metrics import Metrics, rounded_values
from cifar10.report import Mistake, render_report
from cifar10.run.export import export
from cifar10.run.job import Job, evaluation_input, make_job
from cifar10.schema import EVAL, TRAIN, VALIDATION
from cifar10.step import devices, model_fn
from cifar10.step.params import ModelParams
from cifar10_program import command_line

RESULT_NAME, REPORT_NAME = "result.json", "report.html"
_MISTAKES = 36


class Evaluation(NamedTuple):
    """A checkpoint's metrics on the eval split.

    Attributes:
      checkpoint: the checkpoint's path.
      step: the checkpoint's global step.
      class_names: the classes in the order of the labels.
      metrics: `loss`, the mean cross-entropy in nats; `accuracy`, the share of images whose
        likeliest class is the true one; and `augmented_accuracy`, if there is augmentation.
      images: uint8 [N, 32, 32, 3], in the order of the records.
      labels: the true classes, int64 [N].
      classes: the predicted classes, int64 [N].
      probabilities: float32 [N, classes].
    """

    checkpoint: str
    step: int
    class_names: tuple[str, ...]
    metrics: dict[str, float]
    images: Any
    labels: Any
    classes: Any
    probabilities: Any

    @property
    def confusion_matrix(self) -> Any:
        """The number of images by true class (rows) and predicted one, int64 [classes, classes]."""
        count = self.probabilities.shape[1]
        pairs = np.bincount(self.labels * count + self.classes, minlength=count**2)
        return pairs.reshape(count, count)

    def __str__(self) -> str:
        text = f"eval accuracy {self.metrics['accuracy']:.4f} on {len(self.labels):,} images"
        if "augmented_accuracy" in self.metrics:
            text += f", {self.metrics['augmented_accuracy']:.4f} with test-time augmentation"
        return text


class _Rows(tf.train.SessionRunHook):
    """Collects the rows of an evaluation, one for each image; see `model_fn.EVALUATED`."""

    def __init__(self) -> None:
        self._batches: list[Any] = []

    def before_run(self, run_context: Any) -> Any:
        """Requests those of a batch."""
        graph = run_context.session.graph
        return tf.train.SessionRunArgs(graph.get_collection(model_fn.EVALUATED))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keeps those of a batch."""
        self._batches.append(run_values.results)

    def all(self) -> list[Any]:
        """Returns an array [images, ...] for each tensor."""
        return [np.concatenate(batches) for batches in zip(*self._batches)]


def evaluate_split(job: Job, checkpoint: str, guarded: guard.Guard) -> Evaluation:
    """Runs `checkpoint` over the eval split, with --test-time-augmentation over some views, too.

    Raises:
      DataError: records are damaged.
      Stopped: a signal arrived.
    """
    config = job.config
    step = checkpoints.read_counter(checkpoint, "global_step")
    event_files.take_back(config.log_folder(EVAL), step)  # It may be evaluated again.
    run_config = tf.estimator.RunConfig(session_config=job.params.plan.session_config)
    params = dataclasses.replace(job.params, augments_test=config.test_time_augmentation)
    # Its events go to the log folder; the checkpoint may be elsewhere.
    estimator = tf.estimator.Estimator(model_fn.model_fn, config.log_path, run_config, params)
    rows = _Rows()
    found = estimator.evaluate(
        lambda: evaluation_input(job, EVAL),
        hooks=[*guarded.evaluation_hooks, rows],
        checkpoint_path=checkpoint,
    )
    found["loss"] = found["cross_entropy"]
    names = ("loss", "accuracy", "augmented_accuracy")
    metrics = {name: float(found[name]) for name in names if name in found}
    return Evaluation(checkpoint, step, job.records.class_names, metrics, *rows.all())


def evaluate(config: TrainConfig, stop: StopRequest) -> Evaluation:
    """Runs the mode: prints accuracy and loss of a checkpoint on the eval split, and returns them.

    Raises:
      ConfigError: the records have other classes than the model, or TensorBoard's event files
        cannot be written.
      DataError: records are missing or damaged.
      UserError: there is no complete checkpoint.
      Stopped: a signal arrived.
    """
    records = open_records(config.data_path, EVAL)
    model_settings.check_classes(config, records.class_names)
    config, _ = model_settings.apply(config)
    job = make_job(config, records)
    checkpoints.find(config)  # Without one, this mode writes nothing.
    require_writable(config.log_folder(EVAL), EVENTS)
    with guard.of(job.params, None, records, stop) as guarded:
        result = checkpoints.with_found(config, lambda path: evaluate_split(job, path, guarded))
    log(f"{config.model_title}, {result.checkpoint}, {job.params.plan.summary}")
    matrix = result.confusion_matrix
    for name, right, total in zip(records.class_names, np.diag(matrix), matrix.sum(axis=1)):
        share = f"{right / total:.4f}" if total else "no images"
        log(f"  {one_line(name):<10}  {share}")
    log(f"{result}, loss {result.metrics['loss']:.4f} at step {result.step:,}")
    return result


def finish(job: Job, guarded: guard.Guard, metrics: Metrics, status: str, seconds: float) -> None:
    """Evaluates the best checkpoint on the eval split, exports it, writes result and report.

    Args:
      job: the job that was trained.
      guarded: knows the hooks of an evaluation, and the cluster.
      metrics: the rows of training and validation; they get one of the evaluation.
      status: how training ended, for people.
      seconds: the time since the process started, in seconds.

    Raises:
      UserError: the checkpoint or the data are damaged.
      Stopped: a signal arrived.
    """
    config = job.config
    checkpoint = checkpoints.find(config)
    log(f"evaluating {checkpoint} on the {EVAL} split")
    evaluation = evaluate_split(job, checkpoint, guarded)
    metrics.add(EVAL, evaluation.step, **evaluation.metrics)
    exported = export(job.params, job.records.class_names, checkpoint)
    result = {
        "status": status,
        "model": config.model_title,
        "recipe": config.recipe,
        "command": command_line(),
        "finished_at": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "figures": _metrics(job, metrics, evaluation, seconds),
        "configuration": describe_config(job.params),
        "chosen": list(_chosen(job.params)),
        "cluster": guarded.describe(job.params.examples_per_step),
        "versions": devices.versions(),
        "hardware": devices.hardware(),
        "data": job.records.manifest,
        "class_names": list(job.records.class_names),
        "confusion_matrix": evaluation.confusion_matrix.tolist(),
        "history": {split: metrics.of(split) for split in (TRAIN, VALIDATION)},
    }
    report, path = _paths(config.output_path)
    write_json(path, result)  # First: nothing in a page of pictures may cost it.
    write_text(report, render_report(result, _worst_mistakes(evaluation)))
    log(f"{evaluation}, {status}\nreport: {report}\nresult: {path}\nexport: {exported}")


def _paths(output_dir: str) -> list[str]:
    """Returns the paths of the report and of the result."""
    return [str(tf.io.gfile.join(output_dir, name)) for name in (REPORT_NAME, RESULT_NAME)]


def describe_finished(output_dir: str, step: int) -> Optional[str]:
    """Returns a message for people who start a finished run again.

    Args:
      output_dir: path of the output folder.
      step: the last step.

    Returns:
      The message; None if the results of a run that ended at `step` have not been written.
    """
    report, path = _paths(output_dir)
    try:
        recorded = read_json(path)["figures"]
        found, accuracy = recorded["global_step"], float(recorded["eval_accuracy"])
    except (tf.errors.NotFoundError, DamagedError, KeyError, TypeError, ValueError):
        return None  # It is written, or written again.
    if found != step or not exists(report):  # The report comes last.
        return None
    return (
        f"already trained to step {step:,}: eval accuracy {accuracy:.4f}, report: {report}, "
        f"result: {path}\nto train on, raise --train-steps, --train-epochs or the stopping "
        "criterion that ended it; to start anew, name another --output-dir"
    )


def _metrics(job: Job, metrics: Metrics, evaluation: Evaluation, seconds: float) -> dict[str, Any]:
    output_dir, of_eval = job.config.output_path, evaluation.metrics
    best = checkpoints.best(output_dir)
    last = checkpoints.read_position(checkpoints.latest(output_dir))

    def median(name: str) -> Optional[float]:
        rates = [row[name] for row in metrics.of(TRAIN) if name in row]
        return float(np.median(rates)) if rates else None

    found = {
        "eval_accuracy": of_eval["accuracy"],
        "eval_accuracy_augmented": of_eval.get("augmented_accuracy"),
        "eval_loss": of_eval["loss"],
        "eval_examples": len(evaluation.labels),
        "best_validation_accuracy": best.accuracy if best else None,
        "best_validation_step": best.step if best else None,
        "global_step": last.step,
        "epochs": last.examples_seen / job.params.num_examples,
        "examples_seen": last.examples_seen,
        "training_seconds": metrics.seconds,
        "wall_seconds": seconds,
        "images_per_sec": median("images_per_sec"),
        "own_images_per_sec": median("own_images_per_sec"),
        "num_parameters": model_fn.count_parameters(job.config, job.params.num_classes),
    }
    return rounded_values(found)


def _worst_mistakes(evaluation: Evaluation) -> list[Mistake]:
    """Returns the wrongly classified images with the highest confidence."""
    labels, predicted = evaluation.labels, evaluation.classes
    probabilities, confidence = evaluation.probabilities, evaluation.probabilities.max(axis=1)
    wrong = np.flatnonzero(predicted != labels)
    worst = wrong[np.argsort(-confidence[wrong], kind="stable")][:_MISTAKES]
    columns = (labels, predicted, confidence, probabilities[np.arange(len(labels)), labels])
    values = (column[worst].tolist() for column in columns)
    return [Mistake(*row) for row in zip(worst.tolist(), evaluation.images[worst], *values)]


def describe_config(params: ModelParams) -> dict[str, Any]:
    """Returns every setting by name, with the values that were chosen for unset ones."""
    return {**dataclasses.asdict(params.config), **_chosen(params)}


def _chosen(params: ModelParams) -> dict[str, Any]:
    """Returns the settings whose values were chosen for this run, by name."""
    config, plan, batch = params.config, params.plan, params.examples_per_step
    session, steps_per_epoch = plan.session_config, params.num_examples / batch
    resolved = {
        **models.find(config.model).resolved(config),
        "num_gpus": len({device for device in plan.tower_devices if "gpu" in device}),
        "num_towers": plan.num_towers,
        "data_format": plan.data_format,
        "num_intra_threads": session.intra_op_parallelism_threads,
        "num_inter_threads": session.inter_op_parallelism_threads,
        "kernels": plan.kernels,
        "summary_steps": config.steps_between_rows(params.total_steps),
    }
    if config.learning_rate is None:
        resolved["learning_rate"] = highest_rate(config, batch, params.replication.staleness)
        resolved["learning_rate_batch"] = batch
    if config.warmup_epochs is None:
        steps = warmup_steps(config, steps_per_epoch, params.total_examples / batch)
        resolved["warmup_epochs"] = steps / steps_per_epoch
    found = {name: value for name, value in resolved.items() if value != getattr(config, name)}
    return rounded_values(found)
