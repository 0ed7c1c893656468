"""The Estimator's model_fn: an EstimatorSpec for TRAIN, EVAL and PREDICT."""

import dataclasses
import functools
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10 import optimizers, schedules, towers
from cifar10.config import TrainConfig
from cifar10.devices import DevicePlan
from cifar10.layers import Layers
from cifar10.metrics import confusion_matrix
from cifar10.models import build
from cifar10.records import CIFAR10_DEVIATION, CIFAR10_MEAN
from cifar10.schema import CHANNELS

# Tensors that hooks look up by name.
LOSS, ACCURACY, LEARNING_RATE = "step_loss", "step_accuracy", "step_learning_rate"
IMAGES, LABELS, PROBABILITIES = "eval_images", "eval_labels", "eval_probabilities"
STEP_AFTER, SEEN_AFTER = "step_after", "examples_seen_after"  # counters after this step
EXAMPLES_SEEN = "examples_seen"  # the variable that counts training images
SAMPLES = "sample_summaries"  # collection of pictures, which are drawn less often than curves


@dataclasses.dataclass(frozen=True)
class ModelParams:
    """What the model_fn needs beside features and labels.

    Attributes:
      config: the run's settings.
      plan: the run's devices.
      num_examples: images in the training split.
      total_steps: global step at which training ends.
      channel_mean: of the training images; kept in the checkpoint for evaluation and export.
      channel_deviation: likewise.
    """

    config: TrainConfig
    plan: DevicePlan
    num_examples: int = 1
    total_steps: int = 1
    channel_mean: tuple[float, ...] = CIFAR10_MEAN
    channel_deviation: tuple[float, ...] = CIFAR10_DEVIATION


def model_fn(features: Any, labels: Any, mode: str, params: ModelParams) -> Any:
    """Builds the graph of one mode.

    Args:
      features: uint8 [N, 32, 32, 3].
      labels: int64 [N]; None in PREDICT.
      mode: a tf.estimator.ModeKeys.
      params: settings, devices, data statistics.

    Returns:
      A tf.estimator.EstimatorSpec.
    """
    if labels is None:
        labels = tf.zeros([tf.shape(features)[0]], tf.int64)
    training = mode == tf.estimator.ModeKeys.TRAIN
    make_layers = functools.partial(_layers, params, training)
    images = features if training else towers.fill_towers(features, params.plan.num_towers)
    model = _standardised(build(params.config), params)
    parts = towers.build_towers(model, make_layers, images, labels, params.plan)
    if training:
        return _train_spec(features, parts, params)
    logits = towers.gather_towers([tower.logits for tower in parts])[: tf.shape(features)[0]]
    probabilities = tf.nn.softmax(logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        tf.identity(features, IMAGES)
        return _eval_spec(labels, logits, probabilities)
    return tf.estimator.EstimatorSpec(
        mode, predictions={"classes": tf.argmax(logits, axis=1), "probabilities": probabilities}
    )


def _standardised(model: Any, params: ModelParams) -> Any:
    """Wraps a model so that it takes uint8 images and sees channels of mean 0 and deviation 1.

    Each tower standardises its own part of the batch. The training images' statistics are saved
    with the weights, so that evaluation, prediction and export need nothing but the checkpoint.
    """
    with tf.variable_scope("input"), tf.device(params.plan.variable_devices[0]):
        mean, deviation = (
            tf.get_variable(
                name,
                [CHANNELS],
                tf.float32,
                tf.constant_initializer(values),
                trainable=False,
                use_resource=True,
            )
            for name, values in (
                ("channel_mean", params.channel_mean),
                ("channel_deviation", params.channel_deviation),
            )
        )
        offset, factor = mean.read_value(), 1.0 / deviation.read_value()

    def standardised(layers: Layers, images: Any) -> Any:
        return model(layers, (tf.cast(images, tf.float32) - offset) * factor)

    return standardised


def _layers(params: ModelParams, training: bool, **shared: Any) -> Layers:
    config, plan = params.config, params.plan
    return Layers(
        training=training,
        data_format=plan.data_format,
        compute_dtype=plan.compute_dtype,
        norm=config.batch_norm,
        norm_decay=config.batch_norm_decay,
        norm_epsilon=config.batch_norm_epsilon,
        **shared,
    )


def _train_spec(features: Any, parts: list[towers.Tower], params: ModelParams) -> Any:
    losses = [_tower_mean(_cross_entropy(tower.labels, tower.logits), tower) for tower in parts]
    hits = [_tower_mean(_hits(tower.labels, tower.logits), tower) for tower in parts]
    loss = tf.identity(tf.add_n(losses) / len(losses), LOSS)
    accuracy = tf.identity(tf.add_n(hits) / len(hits), ACCURACY)
    rate, train_op = _train_op(losses, parts, params)
    tf.summary.scalar("loss", loss)
    tf.summary.scalar("accuracy", accuracy)
    tf.summary.scalar("learning_rate", rate)
    tf.summary.image("augmented_samples", features, 8, collections=[SAMPLES])
    return tf.estimator.EstimatorSpec(tf.estimator.ModeKeys.TRAIN, loss=loss, train_op=train_op)


def _train_op(losses: list[Any], parts: list[towers.Tower], params: ModelParams) -> Any:
    """Returns the learning rate and the op that updates weights, statistics and counters."""
    config = params.config
    with tf.device(params.plan.variable_devices[0]):
        seen = tf.get_variable(
            EXAMPLES_SEEN, [], tf.int64, tf.zeros_initializer(), trainable=False, use_resource=True
        )
    rate = schedules.learning_rate(
        config, seen.read_value(), params.num_examples, params.total_steps * config.train_batch_size
    )
    rate = tf.identity(rate, LEARNING_RATE)
    scale = tf.mixed_precision.DynamicLossScale() if params.plan.loss_scaling else None
    gradients = towers.tower_gradients(_scaled(losses, scale), parts)
    weights = parts[0].layers.weights
    averaged = towers.average_gradients(gradients, [weight.variable for weight in weights])
    decayed = optimizers.decay_kernels(config, rate, _unscaled(averaged, scale), weights)
    optimizer = optimizers.build(config, rate, scale)
    step = tf.train.get_global_step()
    statistics = towers.moving_statistics_updates(parts, step.read_value())
    with tf.control_dependencies(statistics):  # They read the step before it is counted.
        apply = optimizer.apply_gradients(decayed, step)
    # This step's rate is read before this step's examples are counted.
    with tf.control_dependencies([apply]):
        seen_after = seen.assign_add(config.train_batch_size, read_value=True)
    with tf.control_dependencies([seen_after]):
        tf.identity(seen_after, SEEN_AFTER)
        tf.identity(step.read_value(), STEP_AFTER)
    return rate, seen_after.op


def _scaled(losses: list[Any], scale: Any) -> list[Any]:
    return losses if scale is None else [loss * scale() for loss in losses]


def _unscaled(gradients: list[tuple[Any, Any]], scale: Any) -> list[tuple[Any, Any]]:
    if scale is None:
        return gradients
    return [(gradient / scale(), variable) for gradient, variable in gradients]


def _eval_spec(labels: Any, logits: Any, probabilities: Any) -> Any:
    """Metrics over every image of the split: sums, so that any batch size gives the same."""
    losses = _cross_entropy(labels, logits)
    tf.identity(probabilities, PROBABILITIES)
    tf.identity(labels, LABELS)
    return tf.estimator.EstimatorSpec(
        tf.estimator.ModeKeys.EVAL,
        loss=tf.reduce_mean(losses),
        eval_metric_ops={
            "accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, axis=1)),
            # Estimator's own "loss" is a mean over batches, which a smaller last batch skews.
            "cross_entropy": tf.metrics.mean(losses),
            "confusion_matrix": confusion_matrix(labels, tf.argmax(logits, axis=1)),
        },
    )


def _cross_entropy(labels: Any, logits: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def _hits(labels: Any, logits: Any) -> Any:
    return tf.cast(tf.equal(tf.argmax(logits, axis=1), labels), tf.float32)


def _tower_mean(values: Any, tower: towers.Tower) -> Any:
    with tf.device(tower.logits.device):
        return tf.reduce_mean(values)
