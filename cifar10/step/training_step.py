"""The graph of one training step: weights to towers, towers to losses, `update`, and its report."""

import functools
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from cifar10.models import Model
from cifar10.models.layers import Layers
from cifar10.step import saving, towers
from cifar10.step.counters import examples_seen
from cifar10.step.losses import cross_entropy
from cifar10.step.replicas import SharedState
from cifar10.step.update import StepSettings, Update, pack
from cifar10.weights.packed import Layout, Slices
from cifar10.weights.spec import Recorder

# Tensors that hooks look up by name.
LOSS, ACCURACY = "step_loss", "step_accuracy"
REPORT = "step_report"  # for `StepReport.of`
OVER = "training_is_over"  # whether the chief has ended training, without a step
# Collection of what the chief runs when it ends training early, before it saves.
EARLY_END = "early_end"


class StepReport(NamedTuple):
    """What a step says of the whole job, in one tensor.

    Attributes:
      step: the global step after it.
      examples_seen: by the whole job, after it.
      learning_rate: that it used.
      over: whether the chief has ended training.
    """

    step: int
    examples_seen: int
    learning_rate: float
    over: bool

    @classmethod
    def of(cls, numbers: Any) -> "StepReport":
        """Reads the value of the tensor `REPORT`, float64 [4]."""
        step, seen, rate, over = numbers.tolist()
        return cls(int(step), int(seen), rate, bool(over))


def report_tensor() -> tf.Tensor:
    """The tensor `REPORT` of the graph that is about to run."""
    return tf.get_default_graph().get_tensor_by_name(f"{REPORT}:0")


class Step(NamedTuple):
    """The graph of a training step.

    Attributes:
      settings: that it was built with.
      loss: of the batch, a scalar.
      train_op: takes the step.
      update: what ends it.
      shared: what the replicas share.
    """

    settings: StepSettings
    loss: tf.Tensor
    train_op: Any
    update: Update
    shared: SharedState

    def spec(self) -> Any:
        """What Estimator trains with, a saver too: a tf.estimator.EstimatorSpec for TRAIN."""
        saveables, config = self.update.saveables(), self.settings.config
        return tf.estimator.EstimatorSpec(
            tf.estimator.ModeKeys.TRAIN,
            loss=self.loss,
            train_op=self.train_op,
            scaffold=saving.make_scaffold(saveables, self.shared, config),
            training_chief_hooks=self.shared.chief_hooks(self.settings.should_end_all),
        )


def lay_out(
    model: Model,
    make_layers: Callable[..., Layers],
    values_from_data: Optional[Mapping[str, Any]] = None,
) -> Layout:
    """Asks a model for its variables, in a graph that nobody will run.

    Args:
      model: (Layers, float32 [N, 32, 32, 3]) -> logits.
      make_layers: makes one tower's Layers.
      values_from_data: first values that were made from the data, by name.
    """
    recorder = Recorder()
    with tf.Graph().as_default(), towers.model_scope():
        layers = make_layers(cross_tower_mean=lambda tensor: tensor, source=recorder)
        model(layers, tf.zeros([1, 32, 32, 3]))
    return Layout(recorder.specs, values_from_data)


def build(
    model: Model,
    layout: Layout,
    make_layers: Callable[..., Layers],
    batch: tuple[tf.Tensor, tf.Tensor],
    settings: StepSettings,
) -> Step:
    """Builds the step.

    Args:
      model: (Layers, images) -> logits.
      layout: of the model's variables.
      make_layers: makes one tower's Layers.
      batch: images uint8 [N, 32, 32, 3] and labels int64 [N].
      settings: see there.
    """
    replication = settings.replication
    packed = pack(layout, replication)
    shared = SharedState(replication)
    # A gradient must not claim a later round than its weights are of, so the round is read first.
    with tf.control_dependencies([shared.rendezvous.current] if shared.rendezvous else []):
        pieces = packed.weights.read(replication.transfer_dtype)
    copies = towers.copies_of_weights(pieces, replication.tower_devices)
    parts = towers.build_towers(
        model,
        functools.partial(make_layers, early=_early(layout, settings)),
        *batch,
        replication.tower_devices,
        [_slices(packed.layout, copy) for copy in copies],
    )
    smoothing = settings.config.label_smoothing
    losses, accuracies = zip(*(_loss_and_accuracy(one, smoothing) for one in parts))
    loss = tf.identity(tf.add_n(losses) / len(losses), LOSS)
    accuracy = tf.identity(tf.add_n(accuracies) / len(accuracies), ACCURACY)
    update = Update(settings, packed, shared)
    done = update.build(losses, copies, parts)
    early_end = update.early_end()
    if early_end is not None:
        tf.add_to_collection(EARLY_END, early_end)
    if shared.over:
        tf.cast(shared.over.variable.read_value(), tf.bool, OVER)
    tf.summary.scalar("loss", loss)
    tf.summary.scalar("accuracy", accuracy)
    tf.summary.scalar("learning_rate", update.rate)
    train_op = _report(done, update.rate, shared, replication.variable_devices[0])
    return Step(settings, loss, train_op, update, shared)


def _report(done: Any, rate: tf.Tensor, shared: SharedState, device: str) -> Any:
    """Ends the step: what hooks want to know comes with the answer of its last device."""
    with tf.device(device), tf.control_dependencies([done]):
        over = shared.over.variable.read_value() if shared.over else tf.constant(0, tf.int64)
        step, seen = tf.train.get_global_step(), examples_seen(device)
        figures = (step.read_value(), seen.read_value(), rate, over)
        return tf.stack([tf.cast(one, tf.float64) for one in figures], name=REPORT).op


def _slices(layout: Layout, copy: tf.Tensor) -> Slices:
    with tf.device(copy.device):
        return Slices(layout.weights, copy)


def _early(layout: Layout, settings: StepSettings) -> Optional[tf.Tensor]:
    """Whether the weights of the first epochs still train; None where there are none."""
    if not layout.has_early:
        return None
    device = settings.replication.variable_devices[0]
    with tf.device(device):
        end = int(settings.config.whitening_bias_epochs * settings.num_examples)
        return examples_seen(device).read_value() < end


def _loss_and_accuracy(tower: towers.Tower, smoothing: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean loss and accuracy of a tower's images, worked out where it is."""
    with tf.device(tower.logits.device):
        losses = cross_entropy(tower.labels, tower.logits, smoothing)
        is_right = tf.equal(tf.argmax(tower.logits, axis=1), tower.labels)
        return tf.reduce_mean(losses), tf.reduce_mean(tf.cast(is_right, tf.float32))
