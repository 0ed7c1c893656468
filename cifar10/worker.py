"""A worker: trains with the master, and leaves saving, validation and figures to it."""

import time

from cifar10 import hooks
from cifar10.cluster import Cluster
from cifar10.config import TrainConfig
from cifar10.console import say
from cifar10.history import History
from cifar10.job import Job, join_job, make_trainer
from cifar10.progress import ProgressLine
from cifar10.progress_hook import ProgressHook, RunLength
from cifar10.records import open_records
from cifar10.schema import TRAIN
from cifar10.stopping import StopRequest
from cifar10.tf_errors import clear_errors
from cifar10.train import introduce, train_input


def train(config: TrainConfig, cluster: Cluster, stop: StopRequest) -> None:
    """Trains until the cluster's last step, or until the master ends training.

    Raises:
      UserError: the data or the settings are wrong.
      TrainingError: training failed, or a task that is needed stays away.
      Stopped: a signal came.
    """
    records = open_records(config.data_place)
    records.require(TRAIN)
    _delay(config.worker_delay_secs * (cluster.task_index + 1), stop)
    job = join_job(config, records, cluster, stop)
    introduce(job, 0)
    clock, history = hooks.StepClock(), History(None)
    length = RunLength(job.total_steps, job.num_examples, job.own_examples)
    with ProgressLine(job.total_steps, job.num_examples / job.params.examples_per_step) as progress:
        shown = ProgressHook(progress, history, clock, length, config.log_steps, None)
        ending = _train(job, [shown, hooks.FollowChiefHook(job.total_steps), hooks.StopHook(stop)])
    job.tell_end()
    say(f"{cluster.label} ends: {ending}; {shown.steps:,} steps of it here")
    stop.check()


def _train(job: Job, train_hooks: list) -> str:
    """Returns how it ended, for people."""
    try:
        with clear_errors(job.config):
            make_trainer(job).train(
                lambda: train_input(job), train_hooks, max_steps=job.total_steps
            )
    except hooks.TrainingOver as over:
        return str(over)
    return "training is over"


def _delay(seconds: float, stop: StopRequest) -> None:
    """Waits before the start, so that the first updates of many workers do not clash."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        stop.check()
        time.sleep(min(0.1, seconds))
