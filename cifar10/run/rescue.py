"""Saves the last complete step of a run that is about to end inside a step that hangs.

The main thread waits in TensorFlow for a machine that does not answer, so another thread saves. The
variables are on the parameter servers, or in this process, and nothing changes them as long as the
step waits. `StepProbe.quiet_state` is read before and after the files are written; a checkpoint
during which it changed is removed. The file that names the newest checkpoint is replaced last, so
that a process that is killed meanwhile leaves the checkpoint before as the newest. If the step ends
after all, the main thread waits until this has saved, so that the two never save at the same time.
"""

import threading
import time
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.host.activity import Activity
from cifar10.output import checkpoints
from cifar10.run.hooks.step_probe import NoAnswer, StepProbe, within
from cifar10.step import training_step

_SAVE_SECS = 60.0
_TRIES = 3
_NEXT_TRY_SECS = 0.5


class Rescue(tf.train.SessionRunHook):
    """Saves from another thread.

    Args:
      output_dir: path of the folder of the checkpoints.
      noted: what the main thread does.
      probe: reads the state of the step.
      check_owner: function that raises TrainingError if another run has taken over the folder.
      keep: function that saves the measurements up to the checkpoint.
    """

    def __init__(
        self,
        output_dir: str,
        noted: Activity,
        probe: StepProbe,
        check_owner: Callable[[], None],
        keep: Callable[[], None],
    ) -> None:
        self._output_dir, self._activity, self._probe = output_dir, noted, probe
        self._check_owner, self._keep = check_owner, keep
        self._saver: Any = None
        self._saving = threading.Lock()

    def begin(self) -> None:
        """Finds the saver of the graph that is about to run."""
        (self._saver,) = tf.get_collection(tf.GraphKeys.SAVERS)
        (self._are_finite,) = tf.get_collection(training_step.FINITE)
        self._step = tf.train.get_global_step()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keeps the main thread from going on while another thread saves and ends the process."""
        with self._saving:
            pass

    def save(self) -> str:
        """Saves if the main thread is inside a training step.

        Returns:
          What was saved, or why nothing was, as the end of a message; empty if the main thread is
          not inside a step.
        """
        if not self._activity.is_in_step:
            return ""
        try:
            step = within(_SAVE_SECS, self._save, "saving")
        except NoAnswer as error:
            return f"; nothing was saved, since {error}"
        if step is None:
            return ""
        return f"; step {step:,} is saved, and the next start continues from it"

    def _save(self) -> Optional[int]:
        """Saves the last complete step, and returns it; None if the main thread goes on itself."""
        self._check_owner()
        with self._saving:
            return self._save_alone() if self._activity.is_in_step else None

    def _save_alone(self) -> int:
        """Saves the last complete step, while the main thread is kept from going on."""
        for _ in range(_TRIES):
            before = self._probe.quiet_state()
            if before is not None:
                session = self._probe.session
                step = int(session.run(self._step))
                if step == checkpoints.latest_step(self._output_dir):
                    return step
                if not session.run(self._are_finite):
                    raise NoAnswer("a weight is NaN or infinite")
                if self._write(session, step, before):
                    return step
            time.sleep(_NEXT_TRY_SECS)
        raise NoAnswer("an update is not complete")

    def _write(self, session: Any, step: int, before: Optional[tuple[int, ...]]) -> bool:
        """Writes a checkpoint; returns whether no update changed the variables meanwhile."""
        prefix = tf.io.gfile.join(self._output_dir, "model.ckpt")
        with session.graph.as_default():  # Without a graph, a thread executes eagerly.
            path = self._saver.save(
                session, prefix, step, write_meta_graph=False, write_state=False
            )
        if self._probe.quiet_state() != before:
            tf.train.remove_checkpoint(path)
            return False
        self._keep()
        checkpoints.add_newest(self._output_dir, path)
        return True
