"""TensorBoard's event files: each step once, also in a run that was killed and went on.

A run that goes on from a checkpoint trains the steps after it again, and a killed process has left
events of them. TensorBoard's way to take such events back is an event SessionLog.START with a step:
`EventAccumulator`, and with it the web page, drops what came before it of that step and later ones.
"""

from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.output import checkpoints
from cifar10.output.history import History
from cifar10.step import training_step
from cifar10.step.training_step import StepReport


def writer(folder: str) -> Any:
    """This process's one event file in a folder; Estimator writes to it, too."""
    with tf.Graph().as_default():  # Where eager execution is on, there is no FileWriter.
        return tf.summary.FileWriterCache.get(folder)


def take_back(folder: str, first_step: int) -> None:
    """Makes TensorBoard drop what earlier processes wrote of `first_step` and later steps."""
    log = tf.SessionLog(status=tf.SessionLog.START)
    writer(folder).add_session_log(log, first_step)


def keep(history: History, folder: str) -> None:
    """Writes rows and events to their files, so that they survive a kill of this process."""
    history.save()
    writer(folder).flush()


class ResumeHook(tf.train.SessionRunHook):
    """Takes back events and rows of the steps that are about to be trained again.

    A session begins with the latest checkpoint; in a cluster that has lost a parameter server, one
    begins in the middle of a process's life.

    Args:
      output_dir: has the checkpoints.
      log_dir: has the events.
      history: has the rows.
    """

    def __init__(self, output_dir: str, log_dir: str, history: History) -> None:
        self._output_dir, self._log_dir, self._history = output_dir, log_dir, history

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Goes by the checkpoint's step; others may have taken steps since it was restored."""
        step = checkpoints.latest_step(self._output_dir)
        self._history.forget_after(step)
        take_back(self._log_dir, step + 1)


class SummaryHook(tf.train.SessionRunHook):
    """Writes a collection's summaries of step 1 and of each multiple of `steps`.

    So they are of the same steps whether the run was killed on its way or not. Where other trainers
    take the step in question, it is the first one that this process begins after it.

    Args:
      collection: has the summaries' ops.
      steps: between two rows.
      folder: gets the events.
    """

    def __init__(self, collection: str, steps: int, folder: str) -> None:
        self._collection, self._steps, self._folder = collection, steps, folder

    def begin(self) -> None:
        """Merges the summaries of the graph that is about to run."""
        self._summary = tf.summary.merge_all(self._collection)
        self._report = training_step.report_tensor()
        self._global_step = tf.train.get_global_step()
        self._writer = writer(self._folder)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Reads the global step."""
        self._step = self._written = int(session.run(self._global_step))

    def before_run(self, run_context: Any) -> Any:
        """Asks for the summaries of a step that is to have them."""
        self._is_due = not self._step or self._round(self._step + 1) > self._round(self._written)
        return tf.train.SessionRunArgs(
            (self._report, self._summary) if self._is_due else (self._report,)
        )

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Writes them."""
        self._step = StepReport.of(run_values.results[0]).step
        if self._is_due:
            self._writer.add_summary(run_values.results[1], self._step)
            self._written = self._step

    def end(self, session: Any) -> None:
        """Writes the events that are still in memory."""
        self._writer.flush()

    def _round(self, step: int) -> int:
        return step // self._steps
