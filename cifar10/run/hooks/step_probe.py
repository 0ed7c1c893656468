"""Looks into a training step from another thread, while the main thread waits for its end."""

import threading
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.host import activity
from cifar10.host.activity import Activity
from cifar10.host.signals import StopRequest
from cifar10.step import training_step
from cifar10.step.sync_replicas import STANDING

_ASK_SECS = 5.0  # for an answer of a few numbers


class NoAnswer(Exception):
    """Something took longer than its time limit, or failed; the message says what."""


class StepProbe:
    """Notes when steps begin and end, and reads their state from other threads.

    Args:
      noted: what the main thread does; it gets the phases of steps.

    Attributes:
      session: the session in which the steps run; None before the first one.
    """

    def __init__(self, noted: Activity) -> None:
        self._activity = noted
        self.session: Any = None
        self._begun = self._taken_before = 0

    def find(self, graph: tf.Graph) -> None:
        """Finds the tensors of the graph that is about to run."""
        self._taken = graph.get_tensor_by_name(f"{training_step.TAKEN}:0")
        names = {op.name for op in graph.get_operations()}
        self._standing = graph.get_tensor_by_name(f"{STANDING}:0") if STANDING in names else None

    def begin(self, session: Any) -> None:
        """Reads how many batches earlier sessions of this process have taken."""
        self._begun, self._taken_before = 0, int(session.run(self._taken))
        self.session = session
        self._activity.begin(activity.START)

    def step_begins(self) -> None:
        """Notes that a step begins."""
        self._begun += 1
        self._activity.begin(activity.FIRST_STEP if self._begun == 1 else activity.STEP)

    def step_ends(self) -> None:
        """Notes that the step has ended."""
        self._activity.begin(activity.BETWEEN)

    def waits_for_input(self) -> bool:
        """Returns whether the step has not got its batch yet.

        Raises:
          NoAnswer: the session does not reply.
        """
        return int(self._ask(self._taken)) - self._taken_before < self._begun

    def standing(self) -> Optional[list[bool]]:
        """Returns which synchronous replicas have pushed their gradients of the current round.

        It returns None if updates do not wait for other replicas.

        Raises:
          NoAnswer: the parameter servers do not reply.
        """
        if self._standing is None:
            return None
        current, *arrived = self._ask(self._standing).tolist()
        return [one == current for one in arrived]

    def _ask(self, tensor: tf.Tensor) -> Any:
        """Returns the value of a tensor, read in a thread: nothing can interrupt a session.

        Raises:
          NoAnswer: it takes too long, or it fails.
        """
        what, answer = "reading the state of the step", list[Any]()

        def run() -> None:
            try:
                answer.append(self.session.run(tensor))
            except BaseException as error:  # Told to the caller below.
                answer.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(_ASK_SECS)
        if not answer:
            raise NoAnswer(f"{what} took longer than {_ASK_SECS:g} s")
        if isinstance(answer[0], BaseException):
            reason = (str(answer[0]).splitlines() or [type(answer[0]).__name__])[0]
            raise NoAnswer(f"{what} failed ({reason})") from answer[0]
        return answer[0]


class EvaluationHook(tf.train.SessionRunHook):
    """Notes each batch of an evaluation, and ends the evaluation when a signal arrives.

    Args:
      noted: what the main thread does.
      stop: knows whether a signal has arrived.
    """

    def __init__(self, noted: Activity, stop: StopRequest) -> None:
        self._activity, self._stop = noted, stop

    def begin(self) -> None:
        """Notes that the evaluation begins."""
        self._activity.begin(activity.EVALUATION)

    def before_run(self, run_context: Any) -> None:
        """Raises Stopped if a signal has arrived; there is nothing to save."""
        self._stop.check()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Notes that a batch has ended."""
        self._activity.begin(activity.EVALUATION)
