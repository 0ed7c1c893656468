"""Mutants that may survive, each with the reason why no test can or need notice it.

A mutant is recognised by its module, function, line of the source and change, as the report shows
them. `python -m tests.mutants` fails on a survivor that is not in this list, and on an entry whose
mutant is killed or exists no longer.
"""

from typing import NamedTuple


class Survivor(NamedTuple):
    """A mutant that may survive.

    Attributes:
      module: its file.
      place: the function or class around it; "" at the top level.
      text: its line of the source.
      change: `old -> new`, as the report shows it.
      reason: why it may.
    """

    module: str
    place: str
    text: str
    change: str
    reason: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What `Mutant.key` is for its mutant."""
        return self.module, self.place, self.text, self.change


_SUPERVISOR, _LOOKAHEAD = "launch/supervisor.py", "cifar10/lookahead.py"
_METRICS, _LAYERS = "cifar10/metrics.py", "cifar10/layers.py"
_RESOURCE = "TensorFlow 2 makes resource variables by default, also in graphs"
_STARTS_FIRST = "`start` sets it before anything reads it; this is its type"
_NOBODY_READS = "the value of a branch is read by nobody: what counts is that it is done"

SURVIVORS: tuple[Survivor, ...] = (
    Survivor(
        _SUPERVISOR,
        "TaskState",
        "due: float = 0.0",
        "0.0 -> 1.0",
        "it is set with each status that reads it",
    ),
    Survivor(
        _SUPERVISOR,
        "Supervisor.__init__",
        "self._began = 0.0",
        "self._began = 0.0 -> pass",
        _STARTS_FIRST,
    ),
    Survivor(_SUPERVISOR, "Supervisor.__init__", "self._began = 0.0", "0.0 -> 1.0", _STARTS_FIRST),
    Survivor(
        _SUPERVISOR,
        "Supervisor.__init__",
        "self._heard = 0.0",
        "self._heard = 0.0 -> pass",
        _STARTS_FIRST,
    ),
    Survivor(_SUPERVISOR, "Supervisor.__init__", "self._heard = 0.0", "0.0 -> 1.0", _STARTS_FIRST),
    Survivor(
        _SUPERVISOR,
        "Supervisor._late_failure",
        "done = self._verdict is not None and self._verdict.exit_code == 0",
        "self._verdict is not None and self._verdict.exit_code == 0"
        " -> (self._verdict is not None) or (self._verdict.exit_code == 0)",
        "the first stage is without a signal only after the lead's success",
    ),
    Survivor(
        _SUPERVISOR,
        "Supervisor._judge_quitters",
        'state.status = "ended"',
        'state.status = "ended" -> pass',
        "of the quitters: `_restart_or_fail` gives them another status at once",
    ),
    Survivor(
        _SUPERVISOR,
        "Supervisor._judge_quitters",
        'state.status = "ended"',
        '"ended" -> "ended_"',
        "of the quitters: `_restart_or_fail` gives them another status at once",
    ),
    Survivor(
        _SUPERVISOR,
        "Supervisor.stop",
        "self._stages = [_Stage(list(self.states), signal.SIGKILL, _KILL_SECS)]",
        "list(self.states) -> (self.states)",
        "a dict gives its keys, too, and none is added or removed; the list is for the type",
    ),
    Survivor(
        "launch/verdict.py",
        "exit_code_of",
        "return 128 - code if code < 0 else code",
        "code < 0 -> code <= 0",
        "0 has been answered two lines above",
    ),
    Survivor(
        "launch/verdict.py",
        "exit_code_of",
        "return 128 - code if code < 0 else code",
        "0 -> 1",
        "0 has been answered two lines above",
    ),
    Survivor(
        _LAYERS,
        "Layers.max_pool",
        "window = self._window(size)",
        "self._window(size) -> (size)",
        "TensorFlow takes one number for both directions, too",
    ),
    Survivor(
        _LAYERS,
        "Layers.average_pool",
        "window = self._window(size)",
        "self._window(size) -> (size)",
        "TensorFlow takes one number for both directions, too",
    ),
    Survivor(
        _METRICS,
        "confusion_matrix",
        "total = tf.get_variable(",
        'tf.get_variable( "confusion_matrix", [NUM_CLASSES, NUM_CLASSES], tf.int64,'
        " tf.zeros_initializer(), trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES,"
        " tf.GraphKeys.METRIC_VARIABLES], use_resource=True, ) -> tf.get_variable("
        '"confusion_matrix", [NUM_CLASSES, NUM_CLASSES], tf.int64, tf.zeros_initializer(),'
        " trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES,"
        " tf.GraphKeys.METRIC_VARIABLES])",
        _RESOURCE,
    ),
    Survivor(
        _METRICS,
        "confusion_matrix",
        "use_resource=True,",
        "True -> False",
        "one process evaluates, step by step: there a variable of either kind counts the same",
    ),
    Survivor(
        _METRICS,
        "confusion_matrix",
        "return total.read_value(), total.assign_add(batch, read_value=True)",
        "total.assign_add(batch, read_value=True) -> total.assign_add(batch)",
        "TensorFlow's default; it is said since the value is what Estimator runs",
    ),
    Survivor(
        _LOOKAHEAD,
        "_average_of",
        "return tf.get_variable(",
        'tf.get_variable( f"{piece.op.name}/{_SUFFIX}", initializer=piece.initial_value,'
        " trainable=False, use_resource=True, ) ->"
        ' tf.get_variable(f"{piece.op.name}/{_SUFFIX}", initializer=piece.initial_value,'
        " trainable=False)",
        _RESOURCE,
    ),
    Survivor(
        _LOOKAHEAD, "_pull.pulled", "return tf.constant(True)", "True -> False", _NOBODY_READS
    ),
    Survivor(
        _LOOKAHEAD,
        "_pull",
        "return tf.cond(due, pulled, lambda: tf.constant(False))",
        "False -> True",
        _NOBODY_READS,
    ),
)
