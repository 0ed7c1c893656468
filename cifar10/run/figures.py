"""The end of a chief beside a separate evaluator, which makes the figures of the run.

The chief ends with exit code 0 only after the figures exist: it waits for the evaluator as long as
that shows progress, and otherwise makes the figures itself.
"""

import dataclasses
import time

from cifar10.host.console import say
from cifar10.host.signals import StopRequest
from cifar10.output import checkpoints, recovery, run_status
from cifar10.output.history import VALIDATION_FILE_NAME, History
from cifar10.run import results
from cifar10.run.hooks.validation import ValidationRecorder
from cifar10.run.job import Job
from cifar10.run.stall_watch import StallWatch

_POLL_SECS = 1.0


def finish(job: Job, stop: StopRequest, history: History, status: str, started: float) -> None:
    """Sees to it that the figures exist: makes them, or waits for the evaluator that does.

    Args:
      job: the job that was trained.
      stop: knows whether a signal has arrived.
      history: the rows of training.
      status: how training ended, for people.
      started: the time when the process started (`time.monotonic`), in seconds.

    Raises:
      UserError: the checkpoint or the data are damaged.
      Stopped: a signal arrived.
    """
    job.activity.begin(None)  # The wait for an evaluator has a time limit of its own.
    with StallWatch(job.activity, job.config.stall_timeout):
        if not job.has_evaluator:
            results.finish(job, stop, history, status, time.monotonic() - started)
        elif not wait_for_evaluator(job, stop, started):
            make_instead_of_evaluator(job, stop, history, status, started)


def wait_for_evaluator(job: Job, stop: StopRequest, started: float) -> bool:
    """Waits until the evaluator has written result.json for the last step.

    Args:
      job: the job that was trained.
      stop: knows whether a signal has arrived.
      started: the time when the process started (`time.monotonic`), in seconds; an evaluator that
        has left no trace counts as silent since then.

    Returns:
      Whether result.json exists. If not, the evaluator has been silent for --cluster-timeout.

    Raises:
      Stopped: a signal arrived.
    """
    place, timeout_secs = job.config.output_place, job.config.cluster_timeout
    step = checkpoints.latest_step(place)
    say("training is over; waiting for the evaluator, which evaluates and exports")
    while True:
        stop.check()
        if results.is_finished(job.config, step):
            say(results.describe_end(job.config))
            return True
        silence = run_status.evaluator_silence(place)
        if (time.monotonic() - started if silence is None else silence) > timeout_secs:
            return False
        time.sleep(_POLL_SECS)


def make_instead_of_evaluator(
    job: Job, stop: StopRequest, history: History, status: str, started: float
) -> None:
    """Makes the figures in this process, from all validations that the evaluator has recorded.

    Args:
      job: the job that was trained.
      stop: knows whether a signal has arrived.
      history: the rows of training.
      status: how training ended, for people.
      started: the time when the process started (`time.monotonic`), in seconds.

    Raises:
      UserError: the checkpoint or the data are damaged.
      Stopped: a signal arrived.
    """
    place = job.config.output_place
    say(
        f"the evaluator has made no progress for {job.config.cluster_timeout:g} s "
        "(--cluster-timeout); this process evaluates and exports instead"
    )
    step = checkpoints.latest_step(place)
    # An evaluator that is started later reads this, and leaves the figures to this process.
    run_status.write(place, True, step, status)
    job = dataclasses.replace(job, has_evaluator=False)
    history.validation = recovery.load_history(place, step, say, VALIDATION_FILE_NAME).validation
    if job.validates:
        ValidationRecorder(job, history, say).validate_if_missing(checkpoints.latest(place), stop)
    results.finish(job, stop, history, status, time.monotonic() - started)
