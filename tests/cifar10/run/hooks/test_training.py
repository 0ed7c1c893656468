"""When training ends early, what its clock counts, and what comes before validation."""

import signal
import time
from typing import Any, Callable, Optional

import pytest
import tensorflow.compat.v1 as tf

from cifar10.errors import Stopped, TrainingOver
from cifar10.host.signals import Stay, StopRequest
from cifar10.run.hooks.training import (
    EndAllHook,
    FollowChiefHook,
    LastStepHook,
    PauseListener,
    SaverHook,
    StepClock,
    StopEvaluationHook,
    StopHook,
    TimeLimitHook,
)
from cifar10.step import training_step
from tests.cifar10.hooked import stopped, train
from tests.cifar10.tf_internals.private import add_listener


def test_a_clock_counts_while_it_runs(monkeypatch):
    now = [7.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = StepClock(100.0)
    for is_running, seconds in ((False, 100.0), (True, 102.0), (False, 102.0), (True, 104.0)):
        if is_running:
            clock.run()
        now[0] += 2.0
        assert clock.seconds == seconds
        clock.pause()
        assert clock.seconds == seconds


def test_a_clock_says_whether_it_stood_when_it_was_started():
    clock = StepClock()
    assert clock.run() is True
    assert clock.run() is False
    clock.pause()
    assert clock.run() is True


def test_a_signal_ends_training_after_the_step_at_hand():
    stop = StopRequest()

    class Signal(tf.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            stop._note(signal.SIGTERM)

    assert train(Signal(), StopHook(stop)) == 1
    assert train(StopHook(StopRequest())) == 20


def test_a_signal_ends_training_of_a_replica_that_the_master_needs_after_its_stay():
    stop, left = StopRequest(), [False] * 4 + [True]

    class Signal(tf.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            stop._note(signal.SIGTERM)

    assert train(Signal(), StopHook(stop, Stay(stop, lambda: not left.pop(0)))) == 5


def test_a_signal_before_training_starts_no_session():
    with pytest.raises(Stopped):
        train(StopHook(stopped()))


def test_a_signal_breaks_an_evaluation_off():
    with pytest.raises(Stopped):
        train(StopEvaluationHook(stopped()))
    assert train(StopEvaluationHook(StopRequest())) == 20


def time_limit(seconds: float, stop: Optional[StopRequest] = None) -> TimeLimitHook:
    return TimeLimitHook(time.monotonic() + seconds, stop or StopRequest())


def test_a_time_limit_ends_training_after_the_step_at_hand():
    passed, far = time_limit(0.0), time_limit(1000.0)
    assert (train(passed), passed.reached) == (1, True)
    assert (train(far), far.reached) == (20, False)


@pytest.mark.parametrize(
    ("hook", "saved_at"),
    [
        (lambda: time_limit(0.0), 101),  # What ends a run early adds 100 to the step.
        (lambda: time_limit(0.0, stopped()), 1),  # A signal came as well: the run goes on later.
        (lambda: time_limit(1000.0), 20),
    ],
    ids=["reached", "and a signal", "not reached"],
)
def test_the_last_checkpoint_of_a_run_that_its_time_limit_ends_has_what_ends_a_run(
    tmp_path, hook, saved_at
):
    class EarlyEnd(tf.train.SessionRunHook):
        def begin(self) -> None:
            tf.add_to_collection(
                training_step.EARLY_END, tf.train.get_global_step().assign_add(100).op
            )

    train(EarlyEnd(), hook(), SaverHook(str(tmp_path), 1000))
    latest = tf.train.latest_checkpoint(str(tmp_path))
    assert tf.train.load_variable(latest, "global_step") == saved_at


class EndsAll(tf.train.SessionRunHook):
    """Puts an op where the chief's hook looks for what ends the training of all replicas."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build

    def begin(self) -> None:
        tf.add_to_collection(training_step.END_ALL, self._build())


@pytest.mark.parametrize(
    ("stop", "ended"), [(StopRequest(), 1), (stopped(), 0)], ids=["last step", "signal"]
)
def test_the_chief_ends_the_training_of_all_unless_a_signal_ends_its_own(stop, ended):
    times: list[int] = []
    ops = EndsAll(lambda: tf.py_func(lambda: times.append(1) or 0, [], tf.int64))
    train(ops, EndAllHook(stop))
    assert len(times) == ended


def test_a_process_that_trains_alone_has_nobody_to_tell_of_its_end():
    assert train(EndAllHook(StopRequest())) == 20


class LostSession:
    """A session whose parameter server has gone."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def run(self, _: Any) -> None:
        raise self._error


@pytest.mark.parametrize("kind", [tf.errors.UnavailableError, tf.errors.AbortedError])
def test_a_parameter_server_that_has_gone_needs_no_word_of_the_end(kind):
    with tf.Graph().as_default():
        hook = EndAllHook(StopRequest())
        hook.begin()
        hook.end(LostSession(kind(None, None, "Socket closed")))
        with pytest.raises(tf.errors.InternalError):
            hook.end(LostSession(tf.errors.InternalError(None, None, "another fault")))


def test_a_worker_ends_with_the_chief():
    assert train(FollowChiefHook(1_000), over_at=7) == 7


def test_a_worker_ends_at_the_last_step():
    assert train(FollowChiefHook(10)) == 10


def test_a_worker_that_does_not_know_the_last_step_of_a_continued_run_ends_with_the_chief():
    assert train(FollowChiefHook(10, always=False), first_step=3) == 23
    assert train(FollowChiefHook(10, always=False), first_step=3, over_at=15) == 15
    assert train(FollowChiefHook(10, always=False)) == 10  # It has begun with all others.


def test_a_worker_trains_on_while_the_chief_does():
    assert train(FollowChiefHook(1_000)) == 20


@pytest.mark.parametrize("step", [1_000, 1_003])
def test_a_worker_that_comes_after_the_last_step_does_not_train(step):
    with pytest.raises(TrainingOver) as over:
        train(FollowChiefHook(1_000), first_step=step)
    assert over.value.step == step
    assert str(over.value) == f"training is over at step {step:,}"


def test_a_worker_that_comes_after_an_early_end_does_not_train():
    with pytest.raises(TrainingOver) as over:
        train(FollowChiefHook(1_000), first_step=400, over_before=True)
    assert over.value.step == 400


def test_a_worker_that_comes_just_before_the_end_trains():
    assert train(FollowChiefHook(1_000), first_step=999, over_at=1_000) == 1_000


def pause_listener(
    clock: StepClock, stop: StopRequest, saver: SaverHook, calls: list[str]
) -> PauseListener:
    """One that notes what it calls."""
    return PauseListener(
        clock, lambda: calls.append("keep"), stop, saver, lambda: calls.append("last")
    )


def test_a_checkpoint_stops_the_clock(tmp_path) -> None:
    calls: list[str] = []
    clock, saver = StepClock(), SaverHook(str(tmp_path), 1)
    listener = pause_listener(clock, StopRequest(), saver, calls)
    clock.run()
    listener.after_save(None, 1)
    assert clock.run() is True  # It stood.
    assert calls == []
    saver.at_end = True
    listener.after_save(None, 2)
    assert calls == ["last"]
    listener.end(None, 2)
    assert calls == ["last"]


def test_what_was_measured_is_kept_before_the_checkpoint_is_there(tmp_path) -> None:
    calls: list[str] = []
    saver = SaverHook(str(tmp_path), 1)
    listener = pause_listener(StepClock(), StopRequest(), saver, calls)

    def keep() -> None:
        calls.append(f"keep before {len(list(tmp_path.glob('model.ckpt-*.index')))} more")

    listener._keep = keep
    add_listener(saver, listener)
    train(LastStepHook(2), saver)
    assert calls[:3] == ["keep before 0 more", "keep before 1 more", "keep before 2 more"]


def test_a_signal_leaves_validation_out(tmp_path) -> None:
    calls: list[str] = []
    saver = SaverHook(str(tmp_path), 1)
    saver.at_end = True
    listener = pause_listener(StepClock(), stopped(), saver, calls)
    with pytest.raises(Stopped):
        listener.after_save(None, 1)
    with pytest.raises(Stopped):
        listener.end(None, 1)
    assert calls == []


class Saves(tf.train.CheckpointSaverListener):
    """Notes each checkpoint, and whether the session was at its end."""

    def __init__(self, saver: SaverHook) -> None:
        self._saver = saver
        self.steps: list[tuple[int, bool]] = []

    def after_save(self, session: Any, global_step_value: int) -> None:
        self.steps.append((int(global_step_value), self._saver.at_end))


def test_only_a_step_with_a_checkpoint_asks_for_the_global_step_once_more(tmp_path, monkeypatch):
    steps = []
    save = tf.train.CheckpointSaverHook.after_run

    def note(hook: Any, run_context: Any, run_values: Any) -> None:
        steps.append(run_values.results)
        save(hook, run_context, run_values)

    monkeypatch.setattr(tf.train.CheckpointSaverHook, "after_run", note)
    assert train(LastStepHook(11), SaverHook(str(tmp_path), 4)) == 11
    assert steps == [4, 8]


@pytest.mark.parametrize("total", [8, 9])
def test_the_last_checkpoint_is_left_to_the_end(tmp_path, total):
    saver = SaverHook(str(tmp_path), 4)
    saves = Saves(saver)
    add_listener(saver, saves)
    assert train(LastStepHook(total), saver) == total
    before = [(0, False), (4, False)] + [(8, False)] * (total == 9)
    assert saves.steps == [*before, (total, True)]
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / f"model.ckpt-{total}")
