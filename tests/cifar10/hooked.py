"""Training under hooks: steps that only count, and a clock that only steps move."""

import pathlib
import signal
import types
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.host.process import StopRequest
from cifar10.output.metrics import Metrics
from cifar10.output.training_progress import TrainingProgress
from cifar10.step.training_step import StepReport, StepTensors


def stopped() -> StopRequest:
    """A request as a SIGTERM makes it."""
    stop = StopRequest()
    stop._note(signal.SIGTERM)
    return stop


def report(step: int, *, loss: Optional[float] = None) -> StepReport:
    """A report of a step of ten images, whose loss is its number; accuracy .5, rate .1."""
    return StepReport(step, 10 * step, 0.1, False, float(step if loss is None else loss), 0.5)


def params_in(folder: pathlib.Path, total_steps: int = 1_000, **settings: Any) -> Any:
    """What hooks need of the parameters: steps of 64 images of 640, and few checkpoints."""
    settings = {"checkpoint_steps": 1_000, **settings}
    config = TrainConfig(output_dir=str(folder), log_dir=str(folder / "logs"), **settings)
    return types.SimpleNamespace(
        config=config,
        examples_per_step=64,
        total_steps=total_steps,
        total_examples=64 * total_steps,
        num_examples=640,
        own_examples=None,
    )


class Shown:
    """Takes what a progress line would show."""

    def __init__(
        self, live: bool = False, total_steps: int = 1_000, total_epochs: float = 100.0
    ) -> None:
        self.live, self.total_steps, self.total_epochs = live, total_steps, total_epochs
        self.statuses: list[Any] = []
        self.messages: list[str] = []

    def show(self, item: Any) -> None:
        if isinstance(item, str):
            self.messages.append(item)
        else:
            self.statuses.append(types.SimpleNamespace(**{"own_images_per_sec": None, **item}))


def parts(
    params: Any, stop: Optional[StopRequest] = None, metrics: Optional[Metrics] = None
) -> tuple[Any, ...]:
    """The first arguments of a hook: parameters, signal and progress."""
    shown: Any = Shown(total_steps=params.total_steps)
    return params, stop or StopRequest(), TrainingProgress(shown, params, metrics)


def train(
    *hooks: Any,
    first_step: int = 0,
    steps: int = 20,
    over_at: int = 1_000_000,
    over_before: bool = False,
    loss: Callable[[tf.Tensor], tf.Tensor] = lambda step: tf.cast(step, tf.float32),
    weight: Callable[[tf.Tensor], tf.Tensor] = lambda step: tf.ones([]),
    end_all: Callable[[], int] = lambda: 0,
) -> int:
    """Counts up to `steps` steps under hooks; the chief ends training at `over_at`.

    `loss` and `weight` are functions of the step.
    """
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        begun = step.assign(first_step).op
        setting = tf.train.Scaffold(init_fn=lambda _, session: session.run(begun))
        counted = step.assign_add(1, read_value=True)
        numbers = (counted, 64 * counted, tf.constant(0.25), tf.greater_equal(counted, over_at))
        of_job = tf.stack([tf.cast(number, tf.float64) for number in numbers])
        StepTensors(
            of_job,
            loss(counted),
            tf.constant(0.5),
            are_finite=tf.is_finite(weight(step.read_value())),
            over=tf.constant(over_before),
            samples=tf.zeros([8, 32, 32, 3], tf.uint8),
            end_all=tf.py_func(end_all, [], tf.int64).op,
        ).publish()
        tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
        creator = tf.train.ChiefSessionCreator(setting)
        result = first_step
        # A chief's hook has others beside it.
        every = [single for hook in hooks for single in getattr(hook, "all", [hook])]
        with tf.train.MonitoredSession(creator, every) as session:
            while not session.should_stop() and result < first_step + steps:
                result = int(session.run(counted))
        return result


class Clock:
    """A clock by which each step takes half a second; it stands in for the module `time`.

    Args:
      progress: the progress that it measures.
    """

    def __init__(self, progress: TrainingProgress) -> None:
        self._progress, self._now = progress, 100.0

    def perf_counter(self) -> float:
        return self._now

    def step(self, taken: StepReport, after_a_pause: bool = False) -> None:
        """Takes a step, perhaps after a validation of an hour."""
        if after_a_pause:
            self._progress.pause()
            self._now += 3600.0
        self._progress.step_begins()
        self._now += 0.5
        self._progress.add(taken)
