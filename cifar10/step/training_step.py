"""One training step, from a batch to new weights; the file reads from top to bottom."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from cifar10.models.base import Network
from cifar10.ops.layers import Layers
from cifar10.ops.variables import BY_RULE, Recorder, Spec
from cifar10.optim import decay
from cifar10.optim.packed import Layout, Slices
from cifar10.step import towers
from cifar10.step.gradients import average_gradients, average_moments, tower_gradients
from cifar10.step.params import ModelParams
from cifar10.step.state import TrainingState
from cifar10.step.sync_replicas import ROUNDS

_SAMPLES_SHOWN = 8
_PUBLISHED = "training_step"  # the collection of `StepTensors`


class StepReport(NamedTuple):
    """What a step tells the hook.

    Attributes:
      step: the global step after this step.
      examples_seen: the number of training images that the whole job has seen after this step.
      learning_rate: the learning rate of this step.
      over: whether the chief has ended training.
      loss: the mean loss of this process's batch.
      accuracy: the share of this process's batch that was classified rightly.
      samples: of the chief, the first images of its batch, uint8 [8 or N, 32, 32, 3].
    """

    step: int
    examples_seen: int
    learning_rate: float
    over: bool
    loss: float
    accuracy: float
    samples: Any = None

    @classmethod
    def of(cls, of_job: Sequence[float], *of_process: Any) -> "StepReport":
        """Makes a report from the values of `StepTensors.report`."""
        step, examples, rate, over = of_job
        return cls(int(step), int(examples), float(rate), bool(over), *of_process)


class StepTensors(NamedTuple):
    """What hooks fetch and run in a training graph, which has these in a collection.

    Attributes:
      of_job: the job's numbers after the step, float64 [4], which parameter servers send at once.
      loss: see `StepReport`.
      accuracy: see `StepReport`.
      are_finite: whether all weights and statistics are finite, a bool scalar.
      over: whether the chief has ended training, a bool scalar; costs no step.
      samples: see `StepReport`; None but for the chief.
      end_all: the op by which the chief ends the training of all replicas; None for others.
    """

    of_job: Any
    loss: Any
    accuracy: Any
    are_finite: Any
    over: Any
    samples: Any = None
    end_all: Any = None

    @property
    def report(self) -> tuple[tf.Tensor, ...]:
        """What `StepReport.of` takes."""
        shown = () if self.samples is None else (self.samples,)
        return (self.of_job, self.loss, self.accuracy, *shown)

    def publish(self) -> None:
        """Adds these to a collection of the default graph, so that hooks find them."""
        for found in self:
            if found is not None:  # Only the last ones may be None.
                tf.add_to_collection(_PUBLISHED, found)

    @classmethod
    def find(cls) -> "StepTensors":
        """Returns those of the default graph."""
        return cls(*tf.get_collection(_PUBLISHED))


def build(
    model: Network, images: tf.Tensor, labels: tf.Tensor, params: ModelParams
) -> tf.estimator.EstimatorSpec:
    """Builds the graph of a training step.

    Args:
      model: a function (Layers, normalized images float32 [n, 32, 32, 3]) -> logits float32
        [n, classes].
      images: the batch, uint8 [N, 32, 32, 3].
      labels: the true classes, int64 [N].
      params: settings, devices, facts about the data.
    """
    replication, settings = params.replication, params.layers(training=True)
    state = TrainingState(Layout(record(model, settings), params.values_from_data), params)

    # 1. Read the weights once, float32 [size], and copy them to every tower. A gradient must not
    #    carry a later round than that of its weights, so the round is read first.
    with tf.control_dependencies([state.barrier.current] if state.barrier else []):
        shards = state.weights.read(replication.transfer_dtype)
    copies = towers.copies_of_weights(shards, replication.tower_devices)

    # 2. Each tower computes logits, float32 [N / towers, classes], from its part of the batch, and
    #    from them a mean loss. In-graph, towers are on all machines of the cluster.
    still_trains = _still_trains(state)
    slices = [Slices(state.layout.weights, copy) for copy in copies]
    layers = [settings.for_tower(of_tower, still_trains) for of_tower in slices]
    normalize = towers.normalizer(params.channels, state.device, replication.task_device)
    logits = towers.build_towers(model, layers, normalize, images, replication.tower_devices)
    for layer, algorithm in layers[0].convolutions.items():
        tf.logging.info("%s: %s", layer, algorithm)  # --verbose shows it.
    with tf.device(towers.machine_of(replication.tower_devices[0])):
        parts = zip(towers.split_batch(labels, len(logits)), logits)
    smoothing = params.config.label_smoothing
    losses, accuracies = zip(*(_loss_and_accuracy(*part, smoothing) for part in parts))
    loss, accuracy = (tf.add_n(of_towers) / len(logits) for of_towers in (losses, accuracies))

    # 3. Compute each tower's gradient, float32 [size]. Average those of this process and add the
    #    gradient of weight decay, unless the optimizer decouples that, in one part per shard of the
    #    weights and on the shard's device. Average the batch-norm moments, too.
    gradients = tower_gradients(losses, copies, state.scale)
    mean = average_gradients(gradients, copies, state)
    moments = average_moments(layers, state)

    # 4. Update weights, statistics and counters. Synchronous processes average their gradients
    #    before that; asynchronous ones apply their own as they come.
    done = apply_update(state, mean, moments, layers)

    of_job = _report(done, state)
    shared = state.shared
    StepTensors(
        of_job,
        loss,
        accuracy,
        _are_finite(state),
        over=shared.is_over() if shared else tf.constant(False),
        samples=images[:_SAMPLES_SHOWN] if replication.is_chief else None,
        end_all=shared.end_all() if shared and replication.is_chief else None,
    ).publish()
    if state.barrier:
        tf.add_to_collection(ROUNDS, state.barrier.rounds())
    # The report comes after the update, so its op is all that a step has to run.
    return tf.estimator.EstimatorSpec(
        tf.estimator.ModeKeys.TRAIN, loss=loss, train_op=of_job.op, scaffold=state.make_scaffold()
    )


def record(model: Network, layers: Layers) -> list[Spec]:
    """Returns the specs of the variables that a model requests, in the order of its layers.

    It builds the model in a graph that is never run.

    Args:
      model: a function (Layers, images float32 [N, 32, 32, 3]) -> logits float32 [N, classes].
      layers: the layers' settings.
    """
    recorder = Recorder()
    with tf.Graph().as_default(), towers.model_scope():
        model(layers.for_tower(recorder), tf.zeros([1, 32, 32, 3]))
    return recorder.specs


def _still_trains(state: TrainingState) -> Optional[tf.Tensor]:
    """Returns whether the weights that train only in the first epochs still train, a bool scalar.

    For a model without such weights, it is None.
    """
    if not state.layout.has_trained_until:
        return None
    with tf.device(state.device):
        end = int(state.params.config.whitening_bias_epochs * state.params.num_examples)
        return state.examples_seen.read_value() < end


def _loss_and_accuracy(
    labels: tf.Tensor, logits: tf.Tensor, smoothing: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns mean loss and accuracy of a tower's images, float32 scalars on its device."""
    with tf.device(logits.device):
        losses = cross_entropy(labels, logits, smoothing)
        is_right = tf.equal(tf.argmax(logits, axis=1), labels)
        return tf.reduce_mean(losses), tf.reduce_mean(tf.cast(is_right, tf.float32))


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor, smoothing: float = 0.0) -> tf.Tensor:
    """Returns the cross-entropy of each image in nats, float32 [N].

    Args:
      labels: the true classes, int64 [N].
      logits: float32 [N, classes].
      smoothing: the share of each label that is spread evenly over all classes, including the true
        one (Szegedy et al. 2015, arXiv:1512.00567, section 7).
    """
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    if not smoothing:
        return losses
    of_all = -tf.reduce_mean(tf.nn.log_softmax(logits), axis=1)
    return (1.0 - smoothing) * losses + smoothing * of_all


def apply_update(
    state: TrainingState,
    gradients: Sequence[tf.Tensor],
    moments: Sequence[tf.Tensor],
    layers: Sequence[Layers],
) -> Any:
    """Builds the op after which all variables of the step have their new values.

    Args:
      state: the variables.
      gradients: one gradient per shard of the weights, float32 [size of the shard]: the mean over
        this process's towers, with weight decay; see `gradients.average_gradients`.
      moments: one tensor, float32 [2 * channels], or none: see `gradients.average_moments`.
      layers: the layers of each tower of this process.
    """
    barrier, params = state.barrier, state.params
    arrived: list[tf.Operation] = []
    if barrier:
        # The chief goes on with the mean over the replicas; the others wait for its update.
        pushed = barrier.push([*gradients, *moments])
        if not params.replication.is_chief:
            return barrier.wait(pushed)
        values = barrier.mean(pushed)
        gradients, moments = values[: len(gradients)], values[len(gradients) :]
        # A worker that starts again during a round must find no variable changed before others.
        with tf.device(state.device):
            arrived = [tf.group(*values)]
    # These updates read the global step, so they come before it is counted.
    with tf.control_dependencies(arrived):
        updates = [_update_statistics(state, averaged, layers) for averaged in moments]
    # From here on all ops are on the devices of the variables, so that not even a constant has to
    # be sent to another machine.
    with tf.device(state.device), tf.control_dependencies(arrived):
        optimizer, is_taken = state.optimizer, tf.constant(True)
        if state.scale is not None:
            # In fp16, it skips steps whose gradients overflow, and adapts the scale.
            is_taken = tf.reduce_all([tf.reduce_all(tf.is_finite(part)) for part in gradients])
            optimizer = tf.mixed_precision.MixedPrecisionLossScaleOptimizer(optimizer, state.scale)
        with tf.control_dependencies(updates):
            if state.decay.optimizer.decouples_decay and params.config.weight_decay != 0:
                # A step that is skipped must not decay the weights.
                rate = tf.where(is_taken, state.rate, 0.0)
                gradients = decay.decoupled(state.decay, state.weights, gradients, rate)
            updated = list(zip(gradients, state.weights.shards))
            applied = optimizer.apply_gradients(updated, state.step)
        if state.lookahead:
            with tf.control_dependencies([applied]):
                applied = state.lookahead.pull(state.step.read_value(), is_taken)
        # This step's rate is read before this step's examples are counted.
        with tf.control_dependencies([applied]):
            done = state.examples_seen.assign_add(params.examples_per_step)
        if state.layout.has_trained_until:
            with tf.control_dependencies([done]):
                done = tf.cond(_still_trains(state), tf.no_op, lambda: _stop_momentum(state))
        if barrier:
            with tf.control_dependencies([done]):
                done = barrier.close_round()
    return done


def _stop_momentum(state: TrainingState) -> tf.Operation:
    """Builds the op that stops the weights that train only in the first epochs, the last ones.

    They get no gradient any more, but the optimizer's moments would still move them.
    """
    rule, shard = state.optimizer, state.weights.shards[-1]
    count = state.layout.weights.runs(lambda spec: spec.kind in BY_RULE[-1])[-1][1]
    slots = [rule.get_slot(shard, name) for name in rule.get_slot_names()]
    return tf.group(*(slot[-count:].assign(tf.zeros([count])) for slot in slots))


def _update_statistics(state: TrainingState, moments: tf.Tensor, layers: Sequence[Layers]) -> Any:
    """Builds the op that moves the moving statistics towards the statistics of this step.

    In early steps the decay is (1 + step) / (10 + step), so that the initial zeros and ones soon
    lose their weight: with a constant decay of .997, they would still weigh 22 % after 500 steps.

    Args:
      state: the training state, whose moving statistics are float32 [2 * channels].
      moments: the averaged moments of all towers, float32 [2 * channels].
      layers: the layers of each tower of this process.
    """
    (moving,) = state.statistics.shards
    num_replicas = state.params.replication.replicas_to_aggregate or 1
    with tf.device(moving.device):
        of_step = towers.statistics_of(moments, layers, num_replicas)
        steps = tf.cast(state.step.read_value(), tf.float32)
        decay = tf.minimum(state.params.config.batch_norm_decay, (1.0 + steps) / (10.0 + steps))
        return moving.assign_sub((moving.read_value() - of_step) * (1.0 - decay))


def _are_finite(state: TrainingState) -> tf.Tensor:
    """Returns whether all weights and statistics are finite, a bool scalar."""
    finite = []
    for shard in (*state.weights.shards, *state.statistics.shards):
        with tf.device(shard.device):
            finite.append(tf.reduce_all(tf.is_finite(shard.read_value())))
    return tf.reduce_all(finite)


def _report(done: Any, state: TrainingState) -> tf.Tensor:
    """Returns the job's numbers after the step, float64 [4]; see `StepReport`.

    Args:
      done: the op or tensor after which all variables have their new values.
      state: the variables that the report reads.
    """
    with tf.device(state.device), tf.control_dependencies([done]):
        over = state.shared.is_over() if state.shared else tf.constant(False)
        numbers = (state.step.read_value(), state.examples_seen.read_value(), state.rate, over)
        return tf.stack([tf.cast(number, tf.float64) for number in numbers])
