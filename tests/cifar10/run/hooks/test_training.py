"""What the hook of training does between two steps: what it refuses, saves, and what ends it."""

import math
import pathlib
import signal
import time
import types
from typing import Any, Optional

import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.errors import ConfigError, Stopped, TrainingError, TrainingOver
from cifar10.host import activity
from cifar10.host.process import Stay, StopRequest
from cifar10.output import checkpoints
from cifar10.output import report as report_page
from cifar10.output.history import History
from cifar10.run.goals import Goals
from cifar10.run.hooks import summaries
from cifar10.run.hooks.training import ChiefHook, WorkerHook, check_window
from cifar10.run.hooks.validation import EvaluationHook
from cifar10.step.training_step import StepTensors
from tests.cifar10.hooked import job_in, parts, stopped, train
from tests.cifar10.tf_internals.private import add_listener


@pytest.fixture(autouse=True)
def _own_writers(monkeypatch: pytest.MonkeyPatch):
    """No event file of another test, and no module loaded beside a test."""
    monkeypatch.setattr(report_page, "load", lambda: None)
    yield
    tf.summary.FileWriterCache.clear()


class Recorder(tf.train.CheckpointSaverListener):
    """Validates as Estimator's listener does, but not at first; the n-th has accuracy n / 10."""

    def __init__(self, history: History) -> None:
        self.steps: list[int] = []
        self.calls: list[Any] = []
        self._history, self._is_first = history, True

    def after_save(self, session: Any, global_step_value: Any) -> None:
        step, is_first = int(global_step_value), self._is_first
        self._is_first = False
        if is_first:
            return
        self.calls.append(f"validated {step}")
        self.steps.append(step)
        row = {"step": step, "epoch": 1.0, "loss": 1.0, "accuracy": 0.1 * len(self.steps)}
        self._history.validation.append(row)


class Chief(ChiefHook):
    """A chief's hook, and what it calls: `calls` has the number of files before each checkpoint."""

    def __init__(
        self,
        folder: pathlib.Path,
        stop: Optional[StopRequest] = None,
        total_steps: int = 1_000,
        goals: Any = None,
        deadline: float = math.inf,
        **settings: Any,
    ) -> None:
        self.calls: list[Any] = []
        self.given = parts(job_in(folder, total_steps, **settings), stop)
        job, _, _, progress = self.given
        self.recorder = Recorder(progress.history)
        goals = goals or Goals(job.config, progress.history, False, progress.say)
        last = lambda: self.calls.append("last")  # noqa: E731
        more: Any = (goals, deadline, self._before, last)
        super().__init__(*self.given, *more)
        add_listener(self.saver, self.recorder)

    def _before(self) -> None:
        assert self.job.activity.phase == activity.SAVING
        self.calls.append(len(list(pathlib.Path(self._place).glob("model.ckpt-*.index"))))

    @property
    def said(self) -> list[str]:
        messages: list[str] = self.given[3].say.__self__.messages
        return messages


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


# What is not finite.


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_names_step_rate_and_images(tmp_path, loss):
    with pytest.raises(TrainingError) as raised:
        train(Chief(tmp_path), loss=lambda step: tf.where(step < 3, 1.0, loss))
    assert str(raised.value).startswith(
        f"the loss is {loss} at step 3, with learning rate 0.25, on the images 129 to 192 of this "
        "training; nothing of that was saved, and the next start continues from step 0: "
    )


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_not_saved(tmp_path, weight):
    with pytest.raises(TrainingError, match="a weight is NaN or infinite at step 3; nothing of "):
        train(
            Chief(tmp_path, checkpoint_steps=1),
            weight=lambda step: tf.where(step < 3, 1.0, weight),
        )
    assert checkpoints.latest_step(str(tmp_path)) == 2
    assert not list(tmp_path.glob("model.ckpt-3*"))


# Checkpoints.


@pytest.mark.parametrize(("total", "validated"), [(8, [4, 8]), (9, [4, 8, 9])])
def test_the_last_checkpoint_comes_at_the_end_and_says_so_before_its_validation(
    tmp_path, total, validated
):
    chief = Chief(tmp_path, total_steps=total, checkpoint_steps=4)
    chief.recorder.calls = chief.calls
    assert train(chief) == total
    assert chief.recorder.steps == validated
    assert checkpoints.latest_step(str(tmp_path)) == total
    assert chief.calls[-2:] == ["last", f"validated {total}"]
    assert len(chief.calls) == 2 * len(validated) + 2


def test_saving_fetches_nothing_more_in_a_step(tmp_path, monkeypatch):
    report = (tf.constant(1.0),)
    monkeypatch.setattr(StepTensors, "find", lambda: types.SimpleNamespace(report=report))
    assert Chief(tmp_path).saver.before_run(None).fetches is report


def test_a_checkpoint_stops_the_clock(tmp_path):
    chief = Chief(tmp_path)
    train(chief, steps=1)
    assert chief.given[3].clock.run() is True  # It stood.
    assert chief.job.activity.phase == activity.BETWEEN


def test_the_last_checkpoint_is_the_one_whose_validation_reaches_a_goal(tmp_path):
    chief = Chief(tmp_path, checkpoint_steps=2, stop_at_accuracy=0.4)
    assert train(chief) == 8
    assert chief.recorder.steps == [2, 4, 6, 8]
    assert checkpoints.latest_step(str(tmp_path)) == 8
    assert chief.said == [
        "training ends: validation accuracy 0.4000 at step 8 has reached --stop-at-accuracy 0.4"
    ]
    assert chief.calls[-1] == "last"


def test_the_first_step_and_each_checkpoint_have_a_picture_of_their_images(tmp_path, monkeypatch):
    shown: list[int] = []
    monkeypatch.setattr(summaries, "add_samples", lambda folder, step, images: shown.append(step))
    train(Chief(tmp_path, total_steps=7, checkpoint_steps=3))
    assert shown == [1, 3, 6, 7]  # The checkpoint of step 0 has none.


def test_a_session_takes_back_what_came_after_its_checkpoint(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.get_variable("global_step", initializer=tf.constant(20, tf.int64))
        session.run(step.initializer)
        tf.train.Saver().save(session, str(tmp_path / "model.ckpt"), 20)
    chief = Chief(tmp_path)
    history = chief.given[3].history
    history.train = [{"step": 20}, {"step": 21}]
    history.validation = [{"step": 20}, {"step": 40}]
    # Another trainer has taken two steps by now.
    train(chief, first_step=22, over_at=23)
    assert [row["step"] for row in history.validation] == [20, 23]
    assert [row["step"] for row in history.train] == [20]


def test_a_signal_breaks_an_evaluation_off(tmp_path):
    noted = activity.Activity()
    with pytest.raises(Stopped):
        train(EvaluationHook(noted, stopped()))
    assert train(EvaluationHook(noted, StopRequest())) == 20
    assert noted.phase == activity.EVALUATION


# The end of training.


def test_training_ends_at_its_last_step_or_with_the_chief(tmp_path):
    for make in (Chief, worker):
        assert train(make(tmp_path, total_steps=10)) == 10
        assert train(make(tmp_path), over_at=7) == 7
        assert train(make(tmp_path)) == 20
    assert train(worker(tmp_path), first_step=999, over_at=1_000) == 1_000


def test_a_signal_ends_training_after_the_step_at_hand(tmp_path):
    stop = StopRequest()
    assert train(Signal(stop), worker(tmp_path, stop=stop)) == 1
    stop = StopRequest()
    chief = Chief(tmp_path, stop)
    with pytest.raises(Stopped):
        train(Signal(stop), chief)
    assert checkpoints.latest_step(str(tmp_path)) == 1
    assert "last" not in chief.calls


def test_a_signal_before_training_starts_no_session(tmp_path):
    with pytest.raises(Stopped):
        train(Chief(tmp_path, stopped()))


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


# An early end: its last checkpoint has the final weights, but not after a signal.


@pytest.mark.parametrize(
    ("seconds", "has_signal", "saved_at", "told"),
    [(0.0, False, 101, 1), (0.0, True, 1, 0), (1_000.0, False, 20, 1)],
    ids=["reached", "and a signal", "not reached"],
)
def test_a_time_limit_ends_the_training_of_all_after_the_step_at_hand(
    tmp_path, seconds, has_signal, saved_at, told
):
    stop, times = StopRequest(), []
    chief = Chief(tmp_path, stop, deadline=time.monotonic() + seconds)
    try:
        signals = [Signal(stop)] if has_signal else []
        train(*signals, chief, end_all=lambda: times.append(1) or 0)
    except Stopped:
        assert has_signal
    assert checkpoints.latest_step(str(tmp_path)) == saved_at
    assert chief.is_late == (seconds == 0.0)
    assert len(times) == told


class EvaluatorsGoals:
    """Goals that an evaluator's validations reach at the given look."""

    has_evaluator, ending = True, False

    def __init__(self, looks: list[bool]) -> None:
        self._looks = looks

    def are_reached(self) -> bool:
        self.ending = self.ending or self._looks.pop(0)
        return self.ending


@pytest.mark.parametrize(
    ("looks", "has_signal", "saved_at"),
    [([False, False, True], False, 103), ([False], True, 1), ([True], True, 101)],
    ids=["goal", "signal before it", "signal at once"],
)
def test_a_goal_that_an_evaluator_sees_ends_training_after_the_step_at_hand(
    tmp_path, looks, has_signal, saved_at
):
    stop = StopRequest()
    chief = Chief(tmp_path, stop, goals=EvaluatorsGoals(looks))
    try:
        train(*([Signal(stop)] if has_signal else []), chief)
    except Stopped:
        assert has_signal
    assert checkpoints.latest_step(str(tmp_path)) == saved_at


# --profile-steps.


@pytest.mark.parametrize(
    ("first", "total", "recorded"),
    [(0, 8, "3 to 5"), (4, 8, "5 to 5"), (2, 4, "3 to 4"), (5, 8, None), (0, 2, None)],
    ids=["all", "within it", "the end comes first", "after it", "before it"],
)
def test_what_is_left_of_the_steps_to_profile_is_recorded(tmp_path, first, total, recorded):
    chief = Chief(tmp_path, total_steps=total, profile_steps="3:5")
    train(chief, first_step=first)
    traces = list(tmp_path.glob("logs/train/plugins/profile/*/*.xplane.pb"))
    assert len(traces) == (1 if recorded else 0)
    assert chief.said == (
        [
            f"profile of steps {recorded}: {tmp_path}/logs/train/plugins/profile, for "
            "TensorBoard's profile plugin"
        ]
        if recorded
        else []
    )
    with pytest.raises(tf2.errors.UnavailableError):
        tf2.profiler.experimental.stop()  # Nothing goes on being recorded.


def test_steps_to_profile_beyond_the_end_are_refused():
    check_window((3, 5), 5)
    check_window(None, 1)
    with pytest.raises(ConfigError) as refusal:
        check_window((3, 5), 4)
    assert str(refusal.value) == (
        "--profile-steps must end at the last step or before, got 3:5; training ends at step 4"
    )
