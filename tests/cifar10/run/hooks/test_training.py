"""What the hook of training does between two steps: what it refuses, and what ends training."""

import contextlib
import math
import pathlib
import signal
import time
from typing import Any, Optional

import pytest
import tensorflow.compat.v1 as tf

from cifar10.errors import Stopped, TrainingError, TrainingOver
from cifar10.host.signals import Stay, StopRequest
from cifar10.output import checkpoints
from cifar10.output import report as report_page
from cifar10.run.hooks import summaries
from cifar10.run.hooks.saving import SaverHook, Saving
from cifar10.run.hooks.training import ChiefHook, WorkerHook
from tests.cifar10.hooked import job_in, parts, stopped, train


@pytest.fixture(autouse=True)
def _own_writers(monkeypatch: pytest.MonkeyPatch):
    """No event file of another test, and no module loaded beside a test."""
    monkeypatch.setattr(report_page, "load", lambda: None)
    yield
    tf.summary.FileWriterCache.clear()


def chief(
    folder: pathlib.Path, stop: Optional[StopRequest] = None, total_steps: int = 1_000, **more: Any
) -> ChiefHook:
    return ChiefHook(*parts(job_in(folder, total_steps), stop), **more)


def worker(
    folder: pathlib.Path,
    total_steps: int = 1_000,
    stop: Optional[StopRequest] = None,
    stay: Optional[Stay] = None,
    knows_last_step: bool = True,
) -> WorkerHook:
    job, stop, probe, progress = parts(job_in(folder, total_steps), stop)
    return WorkerHook(job, stop, probe, progress, stay, knows_last_step)


class Signal(tf.train.SessionRunHook):
    """A signal in the first step."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._stop._note(signal.SIGTERM)


# Losses that are not finite.


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_names_step_rate_and_images(tmp_path, loss):
    with pytest.raises(TrainingError) as raised:
        train(chief(tmp_path), loss=lambda step: tf.where(step < 3, 1.0, loss))
    assert str(raised.value).startswith(
        f"the loss is {loss} at step 3, with learning rate 0.25, on the images 129 to 192 of this "
        "training; nothing of that was saved, and the next start continues from step 0: "
    )


# The end of training.


def test_training_ends_at_its_last_step_or_with_the_chief(tmp_path):
    for make in (chief, worker):
        assert train(make(tmp_path, total_steps=10)) == 10
        assert train(make(tmp_path), over_at=7) == 7
        assert train(make(tmp_path)) == 20
    assert train(worker(tmp_path), first_step=999, over_at=1_000) == 1_000


def test_a_signal_ends_training_after_the_step_at_hand(tmp_path):
    for make in (chief, worker):
        stop = StopRequest()
        assert train(Signal(stop), make(tmp_path, stop=stop)) == 1


def test_a_signal_before_training_starts_no_session(tmp_path):
    with pytest.raises(Stopped):
        train(chief(tmp_path, stopped()))


def test_a_signal_ends_a_worker_that_the_chief_needs_after_its_stay(tmp_path):
    stop, left = StopRequest(), [False] * 4 + [True]
    stay = Stay(stop, lambda: not left.pop(0))
    assert train(Signal(stop), worker(tmp_path, stop=stop, stay=stay)) == 5


def test_a_worker_that_does_not_know_the_last_step_of_a_continued_run_ends_with_the_chief(tmp_path):
    assert train(worker(tmp_path, 10, knows_last_step=False), first_step=3) == 23
    assert train(worker(tmp_path, 10, knows_last_step=False), first_step=3, over_at=15) == 15
    assert train(worker(tmp_path, 10, knows_last_step=False)) == 10  # It has begun with all others.


@pytest.mark.parametrize(
    ("step", "over_before"), [(1_000, False), (1_003, False), (400, True)], ids=str
)
def test_a_worker_that_comes_after_the_end_does_not_train(tmp_path, step, over_before):
    with pytest.raises(TrainingOver) as over:
        train(worker(tmp_path), first_step=step, over_before=over_before)
    assert str(over.value) == f"training is over at step {step:,}"


@pytest.mark.parametrize("has_signal", [False, True])
def test_the_chief_ends_the_training_of_all_unless_a_signal_ends_its_own(tmp_path, has_signal):
    times: list[int] = []
    stop = StopRequest()
    hooks = [chief(tmp_path, stop, total_steps=3), *([Signal(stop)] if has_signal else [])]
    train(*hooks, end_all=lambda: times.append(1) or 0)
    assert len(times) == (0 if has_signal else 1)


@pytest.mark.parametrize("kind", [tf.errors.UnavailableError, tf.errors.AbortedError])
def test_a_parameter_server_that_has_gone_needs_no_word_of_the_end(tmp_path, kind):
    class LostSession:
        def __init__(self, error: Exception) -> None:
            self._error = error

        def run(self, _: Any) -> None:
            raise self._error

    hook = chief(tmp_path)
    train(hook)
    hook.end(LostSession(kind(None, None, "Socket closed")))
    with pytest.raises(tf.errors.InternalError):
        hook.end(LostSession(tf.errors.InternalError(None, None, "another fault")))


# An early end: its last checkpoint has the final weights, but not after a signal.


def last_saved(folder: pathlib.Path, hook: ChiefHook, *hooks: Any, stop: StopRequest) -> int:
    """The step of the last checkpoint; an early end adds 100."""
    job, _, _, progress = parts(job_in(folder))
    saving = Saving(job.activity, progress.clock, stop, str(folder), (), lambda: None)
    with contextlib.suppress(Stopped):
        train(*hooks, hook, SaverHook(str(folder), 1_000, str(folder), saving))
    return checkpoints.latest_step(str(folder))


@pytest.mark.parametrize(
    ("seconds", "has_signal", "saved_at"),
    [(0.0, False, 101), (0.0, True, 1), (1_000.0, False, 20)],
    ids=["reached", "and a signal", "not reached"],
)
def test_a_time_limit_ends_training_after_the_step_at_hand(tmp_path, seconds, has_signal, saved_at):
    stop = StopRequest()
    hook = chief(tmp_path, stop, deadline=time.monotonic() + seconds)
    signals = [Signal(stop)] if has_signal else []
    assert last_saved(tmp_path, hook, *signals, stop=stop) == saved_at
    assert hook.is_late == (seconds == 0.0)


@pytest.mark.parametrize(
    ("looks", "has_signal", "saved_at"),
    [([False, False, True], False, 103), ([False], True, 1), ([True], True, 101)],
    ids=["goal", "signal before it", "signal at once"],
)
def test_a_goal_that_an_evaluator_sees_ends_training_after_the_step_at_hand(
    tmp_path, looks, has_signal, saved_at
):
    stop = StopRequest()
    hook = chief(tmp_path, stop, is_enough=lambda: looks.pop(0))
    signals = [Signal(stop)] if has_signal else []
    assert last_saved(tmp_path, hook, *signals, stop=stop) == saved_at


def test_a_session_takes_back_what_came_after_its_checkpoint(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.get_variable("global_step", initializer=tf.constant(20, tf.int64))
        session.run(step.initializer)
        tf.train.Saver().save(session, str(tmp_path / "model.ckpt"), 20)
    job, stop, probe, progress = parts(job_in(tmp_path))
    progress.history.train = [{"step": 20}, {"step": 21}]
    progress.history.validation = [{"step": 20}, {"step": 40}]
    hook = ChiefHook(job, stop, probe, progress)
    # Another trainer has taken two steps by now.
    train(hook, first_step=22, over_at=23)
    assert progress.history.validation == [{"step": 20}]
    assert [row["step"] for row in progress.history.train] == [20]


def test_the_first_step_and_each_checkpoint_have_a_picture_of_their_images(tmp_path, monkeypatch):
    shown: list[int] = []
    monkeypatch.setattr(summaries, "add_samples", lambda folder, step, images: shown.append(step))
    hook = chief(tmp_path, total_steps=7)
    job, stop, _, progress = parts(job_in(tmp_path))
    saving = Saving(job.activity, progress.clock, stop, str(tmp_path), (hook.keep,), lambda: None)
    train(hook, SaverHook(str(tmp_path), 3, str(tmp_path), saving))
    assert shown == [1, 3, 6, 7]  # The checkpoint of step 0 has none.
