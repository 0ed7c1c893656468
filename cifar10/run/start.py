"""What a run starts from, and what it writes before its first step.

The four rules stand in `cifar10/train.py`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import START, TrainConfig, TrainingPosition
from cifar10.errors import UserError
from cifar10.guard.folder_lock import EVALUATOR, is_held
from cifar10.host.files import exists
from cifar10.host.process import log
from cifar10.input.records import RecordSet
from cifar10.output import checkpoints, metrics, model_settings, recovery, run_file
from cifar10.output.metrics import Metrics
from cifar10.output.run_file import Run
from cifar10.run.job import Job, last_step
from cifar10.run.results import RESULT_NAME
from cifar10.run.validation import ended_before


def find_start(config: TrainConfig, class_names: Sequence[str]) -> Optional[str]:
    """Finds the checkpoint that a chief continues from, in an output folder that it has locked.

    Returns:
      The checkpoint's path; None: a new run begins.

    Raises:
      ConfigError: the folder has checkpoints of another model or of other classes.
      DamagedError: run.json is damaged.
      UserError: no checkpoint is sound.
    """
    output_dir = config.output_path
    model_settings.check_same(config, class_names)  # First: a refused run changes no file.
    recovery.remove_unfinished(output_dir, is_held(output_dir, EVALUATOR))
    return recovery.checkpoint_to_continue(output_dir, log)


def record_model(job: Job, is_new: bool) -> None:
    """Writes run.json; what an older run has left is renamed when a new one begins.

    It comes after the handshake of a cluster: a run that another task refuses changes nothing here.
    """
    if is_new:
        _set_older_aside(job.config.output_path)
    model_settings.write(job.config, job.records.class_names, resize=job.records.resize)


def _set_older_aside(output_dir: str) -> None:
    """Renames the files by which tasks know how an older run went.

    The owner stays: a chief that is started again before its first checkpoint is the same one.
    """
    run = run_file.read(output_dir)
    rows = (metrics.FILE_NAME, metrics.EVALUATOR_FILE_NAME)
    names = (run_file.NAME, *rows, RESULT_NAME)  # run.json is written next.
    paths = [tf.io.gfile.join(output_dir, name) for name in names]
    has_rows = any(exists(path) and tf.io.gfile.stat(path).length for path in paths[1:3])
    if not has_rows:
        del paths[:3]  # They are of a start that failed before its first row.
    recovery.set_older_aside(paths, log)
    run_file.write(output_dir, Run(owner=run.owner))


def prepare_folder(job: Job) -> tuple[Job, Metrics]:
    """Makes the folder ready for training; returns the job and the metrics up to its position.

    What is unfit to continue from is renamed. The job records whether a separate process
    validates: the cluster lists one, or it holds the folder.
    """
    output_dir, step = job.config.output_path, job.params.position.step
    is_listed = bool(job.cluster and job.cluster.has_evaluator)
    has_evaluator = is_listed or is_held(output_dir, EVALUATOR)
    found = Metrics(output_dir, last_step=step)
    found.save()
    run_file.write_training(output_dir, not has_evaluator)
    recovery.settle_best(output_dir, step, job.records.has_validation or has_evaluator, log)
    return dataclasses.replace(job, has_evaluator=has_evaluator), found


def record_end(job: Job, status: str) -> None:
    """Records for other tasks that training is over at the newest checkpoint, and how it ended."""
    output_dir = job.config.output_path
    last = checkpoints.latest_step(output_dir)
    run_file.write_training(output_dir, not job.has_evaluator, last, status)


def position_seen_by_worker(output_dir: str) -> TrainingPosition:
    """Returns how far training has come, as far as this worker can see.

    It sees nothing where it does not share the chief's output folder or may not read it, or where
    the newest checkpoint cannot be read, for which the chief has to find another one.
    """
    try:
        return checkpoints.latest_position(output_dir)
    except (UserError, tf.errors.OpError):
        return START


def step_of_end(config: TrainConfig, cluster: Cluster, records: RecordSet) -> Optional[int]:
    """Returns the step at which training has ended for good; None: it goes on, or nobody knows.

    A task that does not share the chief's output folder cannot see the end there. The chief judges
    by the same rows whether it goes on from that step.
    """
    output_dir = config.output_path
    position, step = position_seen_by_worker(output_dir), run_file.recorded_end(output_dir)
    if step is None or step > position.step:
        return None  # A higher one is of an older run, whose checkpoints were removed.
    last = last_step(config, cluster, records, position)
    return step if step >= last or ended_before(config, step) else None
