"""Records a trace of some steps, and a table of the ops that take the most time in them."""

import posixpath
from typing import Callable, Optional

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.errors import ConfigError
from cifar10.host.files import write_text
from cifar10.tf_internals import profiler

TABLE_NAME = "profile.txt"
_OPS = 10


def check_window(window: Optional[tuple[int, int]], total_steps: int) -> None:
    """Checks that training has the steps of --profile-steps.

    Raises:
      ConfigError: it ends before them.
    """
    if window is not None and window[1] > total_steps:
        raise ConfigError(
            f"--profile-steps must end at the last step or before, got {window[0]}:{window[1]}; "
            f"training ends at step {total_steps:,}"
        )


class Profile:
    """Records the steps of --profile-steps that this process takes.

    In a cluster, it records the ops of this process, not those of other tasks.

    Args:
      window: the first and the last one of these steps; None: there are none.
      folder: the folder for TensorBoard's events of training; the table lies beside it.
      say: a function that prints a line.
    """

    def __init__(
        self, window: Optional[tuple[int, int]], folder: str, say: Callable[[str], None]
    ) -> None:
        self._window, self._folder, self._say = window, folder, say
        self._table = tf.io.gfile.join(posixpath.dirname(folder), TABLE_NAME)
        self._first: Optional[int] = None  # the first step that is recorded, while it goes on

    def begin(self, step: int) -> None:
        """Forgets a window that lies before `step`, from which training continues."""
        if self._first is None and self._window is not None and step >= self._window[1]:
            self._window = None

    def step_begins(self, step: int) -> None:
        """Begins to record before the first step of the window.

        Where other trainers take all steps of the window, this is the first step after it.

        Args:
          step: the global step before this one.
        """
        is_next = self._window is not None and step + 1 >= self._window[0]
        if is_next and self._first is None:
            self._first, self._earlier = step + 1, self._find_traces()
            tf2.profiler.experimental.start(self._folder)

    def step_ends(self, step: int) -> None:
        """Ends the recording after `step` if it is the last one of the window."""
        if self._window is not None and step >= self._window[1]:
            self._end(step)

    def finish(self, step: int) -> None:
        """Ends a recording that the end of training cuts short, or says that there is none."""
        if self._window is not None and self._first is None:
            first, last = self._window
            self._say(f"profile: none; steps {first:,} to {last:,} come after step {step:,}")
        self._end(step)

    def _end(self, step: int) -> None:
        if self._first is None:
            return
        tf2.profiler.experimental.stop()
        # There may be more if somebody else records into this folder; the last name is the latest.
        path = max(self._find_traces() - self._earlier or self._find_traces())
        table = _table(profiler.op_times(path), self._first, step)
        write_text(self._table, table + "\n")
        self._say(f"{table}\nprofile: {self._table}, and the trace {profiler.write_trace(path)}")
        self._first = self._window = None

    def _find_traces(self) -> set[str]:
        # Not by a pattern, as the name of a folder above may contain `[`.
        traces = tf.io.gfile.walk(tf.io.gfile.join(self._folder, "plugins", "profile"))
        paths = [
            str(tf.io.gfile.join(folder, name)) for folder, _, names in traces for name in names
        ]
        return {path for path in paths if path.endswith(".xplane.pb")}


def _table(ops: list[profiler.OpTime], first: int, last: int) -> str:
    """Returns a table of the ops with the most self time, for people."""
    steps, total = last - first + 1, sum(op.seconds for op in ops)
    lines = [
        f"the {_OPS} most expensive types of op in steps {first:,} to {last:,}, by self time on "
        "all threads",
        f"{'op':<36} {'calls/step':>10} {'ms/step':>9} {'share':>6}",
    ]
    everything = profiler.OpTime(f"all {len(ops)} types", sum(op.calls for op in ops), total)
    for op in (*ops[:_OPS], everything):
        share = f" {op.seconds / total:>6.1%}" if op is not everything else ""
        lines.append(
            f"{op.type:<36} {op.calls / steps:>10.1f} {1e3 * op.seconds / steps:>9.2f}{share}"
        )
    return "\n".join(lines)
