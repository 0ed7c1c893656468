"""A worker: trains with the master, which saves, validates and writes the results."""

import functools

from cifar10.cluster.spec import Cluster
from cifar10.config.done import NOTHING_DONE, Done
from cifar10.config.train_config import TrainConfig
from cifar10.errors import TrainingOver, UserError
from cifar10.host.console import say
from cifar10.host.signals import StopRequest
from cifar10.input.records import RecordSet, open_records
from cifar10.output import checkpoints, run_status
from cifar10.output.history import History
from cifar10.output.progress.line import ProgressLine
from cifar10.run import goals
from cifar10.run.hooks import training
from cifar10.run.hooks.finite import FiniteLossHook
from cifar10.run.hooks.progress import ProgressHook
from cifar10.run.hooks.step_probe import StepProbe
from cifar10.run.job import Job, join_job, make_trainer, steps_of_cluster
from cifar10.run.master import say_what_trains, train_input
from cifar10.run.stall_watch import watch_for_stalls
from cifar10.run.tf_errors import clear_errors
from cifar10.schema import TRAIN


def train(config: TrainConfig, cluster: Cluster, stop: StopRequest) -> None:
    """Trains until the cluster's last step, or until the master ends training.

    Raises:
      UserError: the data or the settings are wrong.
      TrainingError: training failed, or a task that is needed does not answer in time.
      Stopped: a signal arrived.
    """
    records = open_records(config.data_place)
    records.require(TRAIN)
    steps = 0
    try:
        check = functools.partial(_check, config, cluster, records, stop)
        check()
        job = join_job(config, records, cluster, check, _done(config))
        try:
            steps = _train(job, stop)
        finally:
            job.close()
        ending = "training is over"
    except TrainingOver as over:
        ending = str(over)
    say(f"{cluster.label} ends: {ending}; it trained {steps:,} steps")


def _train(job: Job, stop: StopRequest) -> int:
    """Trains, and returns the number of steps that this process took."""
    say_what_trains(job, 0)
    stay = job.stay_for_the_master(stop)
    needed = stay if job.config.sync else None  # An asynchronous master needs nobody's gradients.
    probe = StepProbe(job.activity)
    # Steps before may have had other numbers of images, or, in fp16, images without a step. In
    # synchronous training, a worker that leaves before the master would let it wait.
    knows_last_step = job.config.train_epochs is None or (
        not job.config.sync and job.params.done.step > 0
    )
    epochs = job.params.total_epochs
    with ProgressLine(job.total_steps, epochs) as progress, watch_for_stalls(job, probe):
        shown = ProgressHook(progress, History(None), training.StepClock(), job)
        train_hooks = [
            probe,
            FiniteLossHook(job),
            shown,
            training.FollowChiefHook(job.total_steps, knows_last_step),
            training.StopHook(stop, needed),
        ]
        with clear_errors(job.config):
            # Without max_steps: Estimator's hook for it would fetch the global step once more.
            make_trainer(job).train(lambda: train_input(job), train_hooks)
    stop.check()  # A stopped worker may start again, so other tasks must not be told of an end.
    job.tell_end()
    return shown.steps


def _check(config: TrainConfig, cluster: Cluster, records: RecordSet, stop: StopRequest) -> None:
    """Raises Stopped after a signal, or TrainingOver if training is over.

    In both cases it is useless to wait for other tasks. A worker that does not share the master's
    output folder cannot see the end there, and gives up after --cluster-timeout.
    """
    stop.check()
    note = run_status.read(config.output_place)
    if note is None or note["ended_at_step"] is None:
        return
    step, done = note["ended_at_step"], _done(config)
    if step > done.step:
        return  # It is of an older run, whose checkpoints were removed.
    # The master judges by the same rows whether it goes on from that step.
    if step >= steps_of_cluster(config, cluster, records, done) or goals.ended_before(config, step):
        raise TrainingOver(step)


def _done(config: TrainConfig) -> Done:
    """Returns how far training has come, as far as this process can see.

    It sees nothing where it does not share the master's output folder or may not read it, or where
    the newest checkpoint is damaged, for which the master has to find another one.
    """
    try:
        return checkpoints.latest_done(config.output_place)
    except UserError:
        return NOTHING_DONE
