"""Mutants that may survive, each with the reason why no test can notice it or need to.

A mutant is recognised by its module, function, line of the source and change, as the report shows
them. `python -m tests.mutants` fails on a survivor that is not in this list, and on an entry whose
mutant is killed or exists no longer.
"""

from typing import NamedTuple


class Survivor(NamedTuple):
    """A mutant that may survive.

    Attributes:
      module: path of the module's file from the repository's root.
      place: the function or class around it; "" at the top level.
      text: the line of the source, without indentation.
      change: `old -> new`, as the report shows it.
      reason: why the mutant may survive.
    """

    module: str
    place: str
    text: str
    change: str
    reason: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The same as `Mutant.key` of the mutant."""
        return self.module, self.place, self.text, self.change


_SUPERVISOR, _LOOKAHEAD = "launch/supervise/supervisor.py", "cifar10/optim/lookahead.py"
_METRICS, _LAYERS = "cifar10/step/metrics.py", "cifar10/ops/layers.py"
_RESOURCE = "TensorFlow 2 makes resource variables by default, also in graphs"
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
        "launch/record/outcome.py",
        "exit_code_of",
        "return 128 - code if code < 0 else code",
        "code < 0 -> code <= 0",
        "0 has been answered two lines above",
    ),
    Survivor(
        "launch/record/outcome.py",
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
    Survivor(
        "cifar10/input/augment.py",
        "draw",
        "base = tf.constant(limit, tf.uint64)",
        "tf.constant(limit, tf.uint64) -> (limit)",
        "TensorFlow makes the same constant of a plain number",
    ),
    Survivor(
        "cifar10/input/augment.py",
        "",
        'def render(pixels: Any, drawn: Any, fill: str = "zeros", cutout: int = 0) -> Any:',
        '"zeros" -> "zeros_"',
        "`reflect` alone is told apart; config_checks refuses what is neither",
    ),
    Survivor(
        "cifar10/input/augment.py",
        "render",
        "if cutout:",
        "cutout -> True",
        "a square without side blackens nothing",
    ),
    Survivor(
        "cifar10/input/augment.py",
        "render",
        "last = tf.constant(int(pixels.shape[0]) - 1, tf.int64)",
        "tf.constant(int(pixels.shape[0]) - 1, tf.int64) -> (int(pixels.shape[0]) - 1)",
        "TensorFlow makes the same constant of a plain number",
    ),
    Survivor(
        "cifar10/input/augment.py",
        "render",
        "last = tf.constant(int(pixels.shape[0]) - 1, tf.int64)",
        "int(pixels.shape[0]) -> (pixels.shape[0])",
        "TensorFlow makes the same constant of a plain number",
    ),
    Survivor(
        "cifar10/input/augment.py",
        "test_views",
        'padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")',
        "1 -> 2 #2",
        "a second row or column behind the image is never read",
    ),
    Survivor(
        "cifar10/input/augment.py",
        "test_views",
        'padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")',
        "1 -> 2 #4",
        "a second row or column behind the image is never read",
    ),
    Survivor(
        "cifar10/input/augment.py",
        "mean_over_views",
        "views = tf.reshape(logits, [2, len(_TEST_SHIFTS), -1, logits.shape[-1]])",
        "-1 -> (1) #2",
        "logits are [n, 10]: the last axis is the one after the first",
    ),
    Survivor(
        "cifar10/optim/optimizers.py",
        "decoupled_weight_decay",
        "gradient = tf.ensure_shape(gradient, piece.shape)",
        "tf.ensure_shape(gradient, piece.shape) -> (gradient)",
        "it tells TensorFlow what to wait for: time, not values",
    ),
    Survivor(
        "cifar10/step/training_step.py",
        "apply_update",
        "return shared.rendezvous.wait(pushed, shared.over.variable if shared.over else None)",
        "shared.over -> True",
        "who is not the chief has others beside it, and so a flag",
    ),
    Survivor(
        "cifar10/step/training_step.py",
        "apply_update",
        "gradients, moments = values[: len(gradients)], values[len(gradients) :]",
        "len(gradients) -> nothing",
        "gradients are paired with the weights' pieces; what is beyond has no partner",
    ),
    Survivor(
        "cifar10/step/gradients.py",
        "average_gradients",
        "copy_on = {copy.device: copy for copy in reversed(copies)}",
        "reversed(copies) -> (copies)",
        "copies on one device hold the same values",
    ),
    Survivor(
        "cifar10/step/training_step.py",
        "_is_counted",
        "return tf.constant(True) if state.scale is None else optimizers.all_finite(gradients)",
        "state.scale is None -> False",
        "without a scale, weights whose gradient is not finite are lost, decayed or not",
    ),
    Survivor(
        "cifar10/step/gradients.py",
        "tower_gradients",
        "gradients = tf.gradients(scaled, copies, colocate_gradients_with_ops=True)",
        "tf.gradients(scaled, copies, colocate_gradients_with_ops=True) ->"
        " tf.gradients(scaled, copies)",
        "where a gradient is computed changes a step's time, not its result",
    ),
    Survivor(
        "cifar10/step/gradients.py",
        "tower_gradients",
        "gradients = tf.gradients(scaled, copies, colocate_gradients_with_ops=True)",
        "True -> False",
        "where a gradient is computed changes a step's time, not its result",
    ),
    Survivor(
        "cifar10/step/gradients.py",
        "tower_gradients",
        "if any(gradient is None for gradient in gradients):",
        "any -> all",
        "towers have the same graph: all have gradients, or none has",
    ),
    Survivor(
        "cifar10/optim/muon.py",
        "Muon.__init__",
        'super().__init__(use_locking=False, name="Muon")',
        "False -> True",
        "resource variables are assigned whole; what this class inherits for locking is not used",
    ),
    Survivor(
        "cifar10/optim/muon.py",
        "",
        "_TINY = 1e-7",
        "1e-7 -> 2e-07",
        "it keeps zeros from being divided by zero; any small number does",
    ),
    Survivor(
        "cifar10/optim/muon.py",
        "Muon.apply_gradients",
        "return global_step.assign_add(1, name=name).op",
        "global_step.assign_add(1, name=name) -> global_step.assign_add(1)",
        "the name of an op",
    ),
    Survivor(
        "cifar10/optim/muon.py",
        "convolutions",
        "return list(specs[:count])",
        "list(specs[:count]) -> (specs[:count])",
        "a copy of a slice, made a list for the type",
    ),
    Survivor(
        "cifar10/optim/muon.py",
        "orthogonal",
        "x /= tf.norm(x) + _TINY",
        "tf.norm(x) + _TINY -> tf.norm(x) - _TINY",
        "it keeps zeros from being divided by zero; any small number does",
    ),
    Survivor(
        "cifar10/optim/muon.py",
        "orthogonal",
        "is_tall = spec.size // filters >= filters",
        "spec.size // filters -> spec.size * filters",
        "both products give the same matrix; the smaller one takes less time",
    ),
    Survivor(
        "cifar10/optim/muon.py",
        "orthogonal",
        "is_tall = spec.size // filters >= filters",
        "spec.size // filters >= filters -> spec.size // filters > filters",
        "both products give the same matrix; the smaller one takes less time",
    ),
    Survivor(
        "cifar10/optim/muon.py",
        "_unit_filters",
        "return flat * (math.sqrt(spec.shape[-1]) / (tf.norm(flat) + _TINY))",
        "tf.norm(flat) + _TINY -> tf.norm(flat) - _TINY",
        "it keeps zeros from being divided by zero; any small number does",
    ),
    Survivor(
        "cifar10/ops/layers.py",
        "Layers",
        "norm_decay: float = 0.997",
        "0.997 -> 1.994",
        "model_fn always says it; the default is for tests",
    ),
    Survivor(
        "cifar10/ops/layers.py",
        "Layers",
        'norm: str = "tower"',
        '"tower" -> "tower_"',
        "model_fn always says it; the default is for tests",
    ),
    Survivor(
        "cifar10/ops/layers.py",
        "Layers",
        "norm_epsilon: float = 1e-5",
        "1e-5 -> 2e-05",
        "model_fn always says it; the default is for tests",
    ),
    Survivor(
        "cifar10/step/training_step.py",
        "",
        'LOSS, ACCURACY = "step_loss", "step_accuracy"',
        '"step_accuracy" -> "step_accuracy_"',
        "who looks for it reads the same constant",
    ),
    Survivor(
        "cifar10/step/training_step.py",
        "",
        'LOSS, ACCURACY = "step_loss", "step_accuracy"',
        '"step_loss" -> "step_loss_"',
        "who looks for it reads the same constant",
    ),
    Survivor(
        "cifar10/step/training_step.py",
        "",
        'OVER = "training_is_over"  # whether the chief has ended training; costs no step',
        '"training_is_over" -> "training_is_over_"',
        "who looks for it reads the same constant",
    ),
    Survivor(
        "cifar10/step/training_step.py",
        "",
        'REPORT = "step_report"  # read by `StepReport.of`',
        '"step_report" -> "step_report_"',
        "who looks for it reads the same constant",
    ),
    Survivor(
        "cifar10/step/training_step.py",
        "",
        'EARLY_END, END_ALL = "early_end", "end_all"',
        '"early_end" -> "early_end_"',
        "who looks for it reads the same constant",
    ),
    Survivor(
        "cifar10/step/training_step.py",
        "",
        'EARLY_END, END_ALL = "early_end", "end_all"',
        '"end_all" -> "end_all_"',
        "who looks for it reads the same constant",
    ),
    Survivor(
        "cifar10/step/training_step.py",
        "record",
        "model(layers.for_tower(recorder, lambda tensor: tensor), tf.zeros([1, 32, 32, 3]))",
        "zeros -> ones",
        "nobody runs this graph: it is asked for its variables",
    ),
    Survivor(
        "cifar10/step/training_step.py",
        "record",
        "model(layers.for_tower(recorder, lambda tensor: tensor), tf.zeros([1, 32, 32, 3]))",
        "1 -> 2",
        "nobody runs this graph: it is asked for its variables",
    ),
    Survivor(
        "cifar10/step/training_step.py",
        "report_tensor",
        'return tf.get_default_graph().get_tensor_by_name(f"{REPORT}:0")',
        'tf.get_default_graph().get_tensor_by_name(f"{REPORT}:0") -> (f"{REPORT}:0")',
        "a session fetches a tensor by its name, too",
    ),
    Survivor(
        "cifar10/models/resnet.py",
        "ResNetSettings.block_scale",
        "return float((self.layers // 6) ** -0.5)",
        "float((self.layers // 6) ** -0.5) -> ((self.layers // 6) ** -0.5)",
        "the power of a whole number is a float already; it tells the type",
    ),
    Survivor(
        "cifar10/models/resnet.py",
        "_shortcut",
        "if strides == 1:",
        "strides == 1 -> False",
        "without a stride nothing is pooled or padded: the image itself",
    ),
)
