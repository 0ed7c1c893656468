"""What training continues from; the four rules stand in `cifar10/train.py`."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import NOTHING_DONE, Done, TrainConfig
from cifar10.errors import Stopped, TrainingOver, UserError
from cifar10.host.console import say
from cifar10.host.folder_lock import EVALUATOR, is_held
from cifar10.host.signals import StopRequest
from cifar10.input.records import RecordSet
from cifar10.output import checkpoints, recovery, run_file
from cifar10.output.history import METRICS_FILE_NAME, History, Metrics
from cifar10.output.recovery import remove_unfinished
from cifar10.run import goals, hyperparameters, init_checkpoint
from cifar10.run.hooks.training import check_window
from cifar10.run.job import Job, join_job, last_step, start_job


@dataclasses.dataclass(frozen=True)
class Start:
    """What a chief continues from, or that it begins.

    Attributes:
      checkpoint: the checkpoint's path; None: a new run begins.
      done: how far training had come.
      weights: the weights of --init-checkpoint, for a new run that has the flag.
      ended: the goal that keeps the run from going on; None: there is none.
      is_over: whether no step is left to train.
    """

    checkpoint: Optional[str]
    done: Done
    weights: Optional[init_checkpoint.Start]
    ended: Optional[goals.Ending]
    is_over: bool


def find_start(config: TrainConfig, records: RecordSet, cluster: Optional[Cluster]) -> Start:
    """Finds what this chief continues from, in folders that it has locked.

    Raises:
      UserError: no checkpoint is sound, that of --init-checkpoint does not fit, or training ends
        before --profile-steps.
    """
    remove_unfinished(config.output_place, config.log_place)
    checkpoint = recovery.checkpoint_to_continue(config.output_place, say)
    done = checkpoints.read_done(checkpoint)
    last = last_step(config, cluster, records, done)
    check_window(config.profile_window, last)
    weights = None if checkpoint else init_checkpoint.read(config, len(records.class_names))
    unused = checkpoint and init_checkpoint.describe_unused(config, checkpoint)
    if unused:
        say(unused)
    ended = goals.ended_before(config, done.step)
    is_over = ended is not None or done.step >= last
    return Start(checkpoint, done, weights, ended, is_over)


@contextlib.contextmanager
def joined(
    config: TrainConfig,
    records: RecordSet,
    cluster: Optional[Cluster],
    stop: StopRequest,
    start: Start,
) -> Iterator[Job]:
    """Yields the chief's job, in a cluster once the tasks that it needs have answered."""
    if cluster:
        job = join_job(config, records, cluster, stop.check, start.done, not start.is_over)
    else:
        job = start_job(config, records, start.done)
    try:
        if start.weights:
            job = job.with_first_values(start.weights.values)
            say(start.weights.describe())
        if job.cluster_session:
            job.cluster_session.heed_signals(stop)
        listed = cluster is not None and cluster.has_evaluator
        has_evaluator = listed or is_held(config.output_place, EVALUATOR)
        yield dataclasses.replace(job, has_evaluator=has_evaluator)
    except Stopped:
        saved = checkpoints.latest(config.output_place)
        if saved:
            say(f"saved {saved}")  # The launcher reads this line.
        raise
    finally:
        job.close()


def prepare_folder(job: Job, start: Start) -> History:
    """Makes the folder ready for training, and returns the rows of the curves up to `start`.

    What is unfit to continue from is renamed. Other tasks and people find the settings there.
    """
    config, step = job.config, start.done.step
    run_file.write_training(config.output_place, not job.has_evaluator)
    validates = job.records.has_validation or job.has_evaluator
    recovery.settle_best(config.output_place, step, validates, say)
    history = History.load(config.output_place, step)
    path = tf.io.gfile.join(config.log_place, METRICS_FILE_NAME)
    history.metrics = Metrics.load(path, start.checkpoint, step, say)
    hyperparameters.write(job)
    return history


def seen_by_worker(config: TrainConfig) -> Done:
    """Returns how far training has come, as far as this worker can see.

    It sees nothing where it does not share the chief's output folder or may not read it, or where
    the newest checkpoint is damaged, for which the chief has to find another one.
    """
    try:
        return checkpoints.latest_done(config.output_place)
    except UserError:
        return NOTHING_DONE


def check_worker(
    config: TrainConfig, cluster: Cluster, records: RecordSet, stop: StopRequest
) -> None:
    """Raises Stopped after a signal, or TrainingOver if training is over.

    In both cases it is useless to wait for other tasks. A worker that does not share the chief's
    output folder cannot see the end there, and gives up after --cluster-timeout.
    """
    stop.check()
    note = run_file.read(config.output_place).training
    if note is None or note["ended_at_step"] is None:
        return
    step, done = note["ended_at_step"], seen_by_worker(config)
    if step > done.step:
        return  # It is of an older run, whose checkpoints were removed.
    # The chief judges by the same rows whether it goes on from that step.
    last = last_step(config, cluster, records, done)
    if step >= last or goals.ended_before(config, step):
        raise TrainingOver(step)
