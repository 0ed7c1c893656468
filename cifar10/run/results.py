"""Evaluates the best checkpoint after training, and writes export, result.json and report.html."""

import datetime
from typing import Any, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.errors import DamagedError
from cifar10.host import files
from cifar10.host.files import read_json, write_json, write_text
from cifar10.host.process import StopRequest, say
from cifar10.output import checkpoints, run_file
from cifar10.output.history import History, rounded_figures
from cifar10.output.report import Mistake, render_report
from cifar10.run import environment
from cifar10.run.hooks.validation import Ending
from cifar10.run.job import Job
from cifar10.run.modes import export
from cifar10.run.modes.evaluate import Evaluation, describe_augmented, evaluate_split
from cifar10.schema import EVAL
from cifar10_program import command_line

RESULT_NAME, REPORT_NAME = "result.json", "report.html"
_MISTAKES = 36


def finish(
    job: Job,
    stop: StopRequest,
    history: History,
    status: str,
    seconds: float,
) -> None:
    """Evaluates the best checkpoint on the eval split, exports it, writes result and report.

    Args:
      job: the job that was trained.
      stop: knows whether a signal has arrived.
      history: the rows of training and validation.
      status: how training ended, for people.
      seconds: the time since the process started, in seconds.

    Raises:
      UserError: the checkpoint or the data are damaged.
      Stopped: a signal arrived.
    """
    config, cluster = job.config, job.cluster_session
    checkpoint = checkpoints.find(config.output_place)
    say(f"evaluating {checkpoint} on the {EVAL} split")
    evaluation = evaluate_split(job, checkpoint, stop)
    figures = {"loss": evaluation.loss, "accuracy": evaluation.accuracy}
    if evaluation.augmented_accuracy is not None:
        figures["augmented_accuracy"] = evaluation.augmented_accuracy
    history.metrics.add(EVAL, evaluation.step, figures)
    history.metrics.flush()
    exported = export.export(job.params, job.class_names, checkpoint)
    result = {
        "status": status,
        "model": config.model_title,
        "recipe": config.recipe,
        "init_checkpoint": run_file.read(config.output_place).init_checkpoint,
        "command": command_line(),
        "finished_at": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "figures": _figures(job, history, evaluation, seconds),
        "configuration": environment.describe_config(job.params),
        "chosen": environment.chosen_settings(job.params),
        "cluster": cluster.as_dict(job.params.examples_per_step) if cluster else None,
        "versions": environment.versions(),
        "hardware": environment.hardware(),
        "data": job.records.manifest,
        "class_names": list(job.class_names),
        "confusion_matrix": evaluation.confusion_matrix.tolist(),
        "history": history.as_dict(),
    }
    page = render_report(result, _worst_mistakes(evaluation))
    places = [tf.io.gfile.join(config.output_place, name) for name in (REPORT_NAME, RESULT_NAME)]
    write_text(places[0], page)
    # The result is written last: if it exists, so does everything else.
    write_json(places[1], result)
    augmented = describe_augmented(evaluation)
    say(
        f"eval accuracy {evaluation.accuracy:.4f} on {len(evaluation.labels):,} images{augmented}, "
        f"{status}"
    )
    say(f"report: {places[0]}\nresult: {places[1]}\nexport: {exported}")


def describe_finished(output_dir: str, step: int, ended_early: Optional[Ending]) -> Optional[str]:
    """Returns a message for people who start a finished run again.

    Args:
      output_dir: path of the output folder.
      step: the last step.
      ended_early: the goal that keeps it from going on; None: it has reached its last step.

    Returns:
      The message; None if the results of a run that ended at `step` have not been written.
    """
    report, path = (str(tf.io.gfile.join(output_dir, one)) for one in (REPORT_NAME, RESULT_NAME))
    if not files.exists(path):
        return None
    try:
        figures = read_json(path)["figures"]
        found, accuracy = figures["global_step"], float(figures["eval_accuracy"])
    except (DamagedError, KeyError, TypeError, ValueError):  # It is written again.
        return None
    if found != step:
        return None
    # The status in the file may be of other settings.
    goal = f"{ended_early.status.rpartition(' ')[2]} or leave it out" if ended_early else None
    return (
        f"already trained to step {step:,}: eval accuracy {accuracy:.4f}, report: {report}, "
        f"result: {path}\nto train on, raise {goal or '--train-steps or --train-epochs'}; to start "
        "anew, name another --output-dir"
    )


def _figures(job: Job, history: History, evaluation: Evaluation, seconds: float) -> dict[str, Any]:
    config = job.config
    best, last = checkpoints.best(config.output_place), checkpoints.latest(config.output_place)
    rates = [row["images_per_sec"] for row in history.train]
    own = [row["own_images_per_sec"] for row in history.train if "own_images_per_sec" in row]
    seen = checkpoints.read_counter(last, "examples_seen")
    figures = {
        "eval_accuracy": evaluation.accuracy,
        "eval_accuracy_augmented": evaluation.augmented_accuracy,
        "eval_loss": evaluation.loss,
        "eval_examples": len(evaluation.labels),
        "best_validation_accuracy": best.accuracy if best else None,
        "best_validation_step": best.step if best else None,
        "global_step": checkpoints.read_counter(last, "global_step"),
        "epochs": seen / job.num_examples,
        "examples_seen": seen,
        "training_seconds": history.seconds,
        "wall_seconds": seconds,
        "images_per_sec": float(np.median(rates)) if rates else None,
        "own_images_per_sec": float(np.median(own)) if own else None,
        "num_parameters": checkpoints.count_parameters(evaluation.checkpoint),
    }
    return rounded_figures(figures)


def _worst_mistakes(evaluation: Evaluation) -> list[Mistake]:
    """Returns the wrongly classified images with the highest confidence."""
    predicted = evaluation.probabilities.argmax(axis=1)
    rows = np.arange(len(evaluation.labels))
    confidence = evaluation.probabilities[rows, predicted]
    wrong = rows[predicted != evaluation.labels]
    worst = wrong[np.argsort(-confidence[wrong], kind="stable")][:_MISTAKES]
    return [
        Mistake(
            index=int(row),
            image=evaluation.images[row],
            label=int(evaluation.labels[row]),
            predicted=int(predicted[row]),
            probability=float(confidence[row]),
            label_probability=float(evaluation.probabilities[row, evaluation.labels[row]]),
        )
        for row in worst
    ]
