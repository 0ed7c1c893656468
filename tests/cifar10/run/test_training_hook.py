"""What the hook of training does between two steps: what it refuses, saves, and what ends it."""

import math
import pathlib
import signal
import time
from typing import Any, Optional

import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.errors import ConfigError, Stopped, TrainingError, TrainingOver
from cifar10.guard import Guard
from cifar10.guard.watchdog import SAVING
from cifar10.host.process import StopRequest
from cifar10.output import checkpoints
from cifar10.output.metrics import Metrics
from cifar10.run import training_hook as training
from cifar10.run.training_hook import ChiefHook, Saver, Saving, WorkerHook, check_window
from cifar10.run.validation import StoppingCriteria
from tests.cifar10 import saved
from tests.cifar10.hooked import params_in, parts, train

pytestmark = pytest.mark.usefixtures("own_event_files")


class Chief(ChiefHook):
    """A chief's hook, with those that save, validate and judge; the n-th validation is n / 10.

    `calls` has the number of files before each checkpoint, and the step of each validation.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        stop: Optional[StopRequest] = None,
        total_steps: int = 1_000,
        deadline: float = math.inf,
        **settings: Any,
    ) -> None:
        self.calls: list[Any] = []
        self.validated: list[int] = []
        self.saves = 0
        self.metrics = Metrics(str(folder))
        given: Any = parts(params_in(folder, total_steps, **settings), stop, self.metrics)
        super().__init__(*given, deadline)
        config = self.params.config
        self.guarded = Guard(config, self.stop)
        listener, validates = Saving(self, self._before), tf.train.CheckpointSaverListener()
        validates.after_save = self._validated
        self.criteria = StoppingCriteria(config, lambda: self.saved_step, self.progress.log)
        every, listeners = config.checkpoint_steps or 0, [self.guarded.saving, listener, validates]
        saver = Saver(self, every, checkpoint_dir=config.output_dir, listeners=listeners)
        self.all: list[Any] = [*self.guarded.hooks, self, saver, self.criteria]

    def _before(self) -> None:
        assert self.guarded.activity.phase == SAVING
        place = pathlib.Path(self.params.config.output_dir)
        self.calls.append(len(list(place.glob("model.ckpt-*.index"))))

    def _validated(self, session: Any, step: int) -> None:
        self.saves += 1
        if self.saves == 1:  # Estimator does not validate what training begins from.
            return
        step = int(step)
        self.calls.append(f"validated {step}")
        self.validated.append(step)
        row = {"epoch": 1.0, "loss": 1.0, "accuracy": 0.1 * len(self.validated), "seconds": 1.0}
        self.metrics.add("validation", step, **row)

    @property
    def said(self) -> list[str]:
        messages: list[str] = self.progress.log.__self__.messages  # type: ignore[attr-defined]
        return messages


def worker(folder: pathlib.Path, total_steps: int = 1_000, **settings: Any) -> WorkerHook:
    return WorkerHook(*parts(params_in(folder, total_steps, **settings)))


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
    with pytest.raises(TrainingError, match="continues from the chief's last checkpoint: "):
        train(worker(tmp_path), loss=lambda step: tf.where(step < 3, 1.0, loss))


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_not_saved(tmp_path, weight):
    with pytest.raises(TrainingError, match="a weight is NaN or infinite at step 3; nothing of "):
        train(
            Chief(tmp_path, checkpoint_steps=1), weight=lambda step: tf.where(step < 3, 1.0, weight)
        )
    assert checkpoints.latest_step(str(tmp_path)) == 2
    assert not list(tmp_path.glob("model.ckpt-3*"))


# Checkpoints.


@pytest.mark.parametrize(
    ("total", "calls"),
    [
        (8, [0, 1, "validated 4", 2, "validated 8", "end told"]),
        (9, [0, 1, "validated 4", 2, "validated 8", "end told", 3, "validated 9"]),
    ],
)
def test_a_checkpoint_comes_when_it_is_due_and_at_the_end(tmp_path, total, calls):
    chief = Chief(tmp_path, total_steps=total, checkpoint_steps=4)
    assert train(chief, end_all=lambda: chief.calls.append("end told") or 0) == total
    assert chief.calls == calls
    assert checkpoints.latest_step(str(tmp_path)) == total


def test_a_step_without_a_checkpoint_is_one_run_and_reads_no_global_step(tmp_path, monkeypatch):
    """Each read would be another request to a parameter server."""
    run, asked = tf.Session.run, []
    monkeypatch.setattr(
        tf.Session,
        "run",
        lambda self, fetches, *rest, **more: asked.append(fetches)
        or run(self, fetches, *rest, **more),
    )
    chief = Chief(tmp_path, checkpoint_steps=10)
    train(chief, steps=5)
    first = next(index for index, fetches in enumerate(asked) if isinstance(fetches, dict))
    assert all(set(fetches) == {"caller", chief} for fetches in asked[first : first + 5])


def test_a_checkpoint_stops_the_clock(tmp_path):
    chief = Chief(tmp_path)
    train(chief, steps=1)
    before = chief.progress.seconds
    chief.progress.pause()
    assert chief.progress.seconds == before  # It stood.


def test_the_last_checkpoint_is_the_one_whose_validation_reaches_a_goal(tmp_path):
    chief = Chief(tmp_path, checkpoint_steps=2, stop_at_accuracy=0.4)
    assert train(chief) == 8
    assert chief.validated == [2, 4, 6, 8]
    assert checkpoints.latest_step(str(tmp_path)) == 8
    assert chief.said == [
        "training ends: validation accuracy 0.4000 at step 8 has reached --stop-at-accuracy 0.4"
    ]
    assert chief.calls[-1] == "validated 8"  # Nothing is saved at the end.


def test_the_first_step_has_a_picture_of_its_images(tmp_path, monkeypatch):
    shown: list[tuple[int, str, Any]] = []
    monkeypatch.setattr(training, "add_picture", lambda folder, *given: shown.append(given))
    train(Chief(tmp_path, total_steps=7, checkpoint_steps=3))
    ((step, tag, picture),) = shown
    assert (step, tag, picture.shape) == (1, "augmented_samples", (32, 8 * 32, 3))


def test_a_session_takes_back_what_came_after_its_checkpoint(tmp_path):
    saved.save(tmp_path, 20)
    chief = Chief(tmp_path)
    row = {"epoch": 1.0, "loss": 1.0, "accuracy": 0.5, "seconds": 1.0}
    for split, step in (("train", 20), ("train", 21), ("validation", 20), ("validation", 40)):
        chief.metrics.add(split, step, **row)
    taken_back: list[int] = []
    chief.take_back = taken_back.append
    # Another trainer has taken two steps by now.
    train(chief, first_step=22, over_at=23)
    assert [row["step"] for row in chief.metrics.of("validation")] == [20, 23]
    assert [row["step"] for row in chief.metrics.of("train")] == [20, 23]
    assert taken_back == [21]


# The end of training.


def test_training_ends_at_its_last_step_or_with_the_chief(tmp_path):
    for make in (Chief, worker):
        assert train(make(tmp_path, total_steps=10)) == 10
        assert train(make(tmp_path), over_at=7) == 7
        assert train(make(tmp_path)) == 20
    assert train(worker(tmp_path), first_step=999, over_at=1_000) == 1_000


def test_a_worker_that_does_not_know_the_last_step_of_a_continued_run_ends_with_the_chief(tmp_path):
    assert train(worker(tmp_path, 10, train_epochs=1), first_step=3) == 23
    assert train(worker(tmp_path, 10, train_epochs=1), first_step=3, over_at=15) == 15
    assert train(worker(tmp_path, 10, train_epochs=1)) == 10  # It has begun with all others.


def test_an_asynchronous_worker_ends_after_the_images_of_its_epochs_without_the_chief(tmp_path):
    by_epochs = worker(tmp_path, 10, train_epochs=0.5, sync=False)
    by_steps = worker(tmp_path, 10, train_steps=10, sync=False)
    for hook in (by_epochs, by_steps):
        hook.params.total_examples = 320  # of 5 steps, since earlier ones had more images
    assert (train(by_epochs, first_step=3), train(by_steps, first_step=3)) == (5, 10)


@pytest.mark.parametrize(
    ("step", "over_before"), [(1_000, False), (1_003, False), (400, True)], ids=str
)
def test_a_worker_that_comes_after_the_end_does_not_train(tmp_path, step, over_before):
    with pytest.raises(TrainingOver) as over:
        train(worker(tmp_path), first_step=step, over_before=over_before)
    assert str(over.value) == f"training is over at step {step:,}"


@pytest.mark.parametrize(
    ("seconds", "has_signal", "saved_at", "told"),
    [(0.0, False, 1, 1), (0.0, True, 1, 0), (1_000.0, False, 20, 1)],
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
    assert chief.status == ("completed" if seconds else "stopped by --max-minutes")
    assert len(times) == told


def test_validations_of_an_evaluator_end_training_at_the_next_checkpoint(tmp_path):
    class Evaluator(tf.train.SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            row = {"step": 2, "epoch": 1.0, "loss": 1.0, "accuracy": 0.5, "seconds": 1.0}
            saved.validated(tmp_path, [row])

    chief = Chief(tmp_path, checkpoint_steps=3, stop_at_accuracy=0.5)
    assert train(chief, Evaluator()) == 3
    assert chief.criteria.ending.status == "stopped by --stop-at-accuracy"
    assert len(chief.said) == 1


# --profile-steps.


@pytest.mark.parametrize(
    ("first", "total", "recorded"),
    [(0, 8, "3 to 5"), (4, 8, "5 to 5"), (2, 4, "3 to 4"), (5, 8, None), (0, 2, None)],
    ids=["all", "within it", "the end comes first", "after it", "before it"],
)
def test_what_is_left_of_the_steps_to_profile_is_recorded(tmp_path, first, total, recorded):
    saved.save(tmp_path, first)
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
