"""The Estimator's model_fn: an EstimatorSpec for TRAIN, EVAL and PREDICT."""

import dataclasses
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10 import models
from cifar10.config.train_config import TrainConfig
from cifar10.input import augment
from cifar10.ops.layers import Layers
from cifar10.ops.operations import TENSORFLOW
from cifar10.ops.variables import TRAINABLE, SeparateVariables, Spec
from cifar10.step import towers, training_step
from cifar10.step.params import ModelParams

# The collection of an EVAL graph with the images of a batch, uint8 [N, 32, 32, 3], the true and the
# predicted classes, int64 [N], and the probabilities, float32 [N, classes].
EVALUATED = "evaluated"


def model_fn(
    features: tf.Tensor, labels: Optional[tf.Tensor], mode: str, params: ModelParams
) -> tf.estimator.EstimatorSpec:
    """Builds the graph of one mode.

    Metrics of EVAL count images, so they do not depend on the batch size; but Estimator's own loss
    is a mean over batches.

    Args:
      features: the images, uint8 [N, 32, 32, 3].
      labels: the true classes, int64 [N]; None in PREDICT.
      mode: a value of tf.estimator.ModeKeys.
      params: settings, devices, data statistics.
    """
    if mode == tf.estimator.ModeKeys.TRAIN:
        with tf.device(params.replication.task_device):
            network = models.network(params.config)
            return training_step.build(network, features, labels, params)
    if mode == tf.estimator.ModeKeys.PREDICT:
        # An exported model must not depend on the library of the custom ops.
        plan = dataclasses.replace(params.plan, kernels=TENSORFLOW)
        params = dataclasses.replace(params, plan=plan)
    logits = _logits(features, params)
    classes, probabilities = tf.argmax(logits, axis=1), tf.nn.softmax(logits)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"classes": classes, "probabilities": probabilities}
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)
    for tensor in (features, labels, classes, probabilities):
        tf.add_to_collection(EVALUATED, tensor)
    losses = training_step.cross_entropy(labels, logits)
    # Estimator's own "loss" is a mean over batches, so a smaller last batch biases it.
    cross_entropy = tf.metrics.mean(losses)
    metrics = {"accuracy": tf.metrics.accuracy(labels, classes), "cross_entropy": cross_entropy}
    if params.augments_test:
        augmented = tf.argmax(_augmented(features, logits, params), axis=1)
        metrics["augmented_accuracy"] = tf.metrics.accuracy(labels, augmented)
    return tf.estimator.EstimatorSpec(mode, loss=tf.reduce_mean(losses), eval_metric_ops=metrics)


def variable_shapes(config: TrainConfig, num_classes: int) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each weight and statistic of a model, in the order of its layers."""
    return {spec.name: spec.shape for spec in _specs(config, num_classes)}


def count_parameters(config: TrainConfig, num_classes: int) -> int:
    """Counts the numbers that training changes, which statistics and fixed weights are not."""
    return sum(spec.size for spec in _specs(config, num_classes) if spec.kind in TRAINABLE)


def _specs(config: TrainConfig, num_classes: int) -> list[Spec]:
    layers = Layers(training=True, num_classes=num_classes, norm=config.batch_norm)
    return training_step.record(models.network(config), layers)


def _logits(images: tf.Tensor, params: ModelParams) -> tf.Tensor:
    """Computes logits, float32 [N, classes], with variables that a checkpoint fills.

    Args:
      images: uint8 [N, 32, 32, 3].
      params: settings, devices, data statistics.
    """
    plan = params.plan
    filled = towers.fill_towers(images, plan.num_towers)
    network, device = models.network(params.config), plan.variable_devices[0]
    settings, source = params.layers(training=False), SeparateVariables(device)
    layers = [settings.for_tower(source) for _ in plan.tower_devices]
    normalize = towers.normalizer(params.channels, device)
    of_towers = towers.build_towers(network, layers, normalize, filled, plan.tower_devices)
    logits = tf.concat(of_towers, 0)
    return logits if filled is images else logits[: tf.shape(images)[0]]


def _augmented(images: tf.Tensor, logits: tf.Tensor, params: ModelParams) -> tf.Tensor:
    """Returns the logits with test-time augmentation, float32 [N, classes].

    Where the answer is uncertain, they are weighted means over the views of an image.
    """
    rows = augment.uncertain(logits)
    others = augment.test_views(tf.gather(images, rows))[tf.shape(rows)[0] :]
    of_others = _logits(tf.concat([others, images[:1]], 0), params)[:-1]  # never of no images
    of_views = tf.concat([tf.gather(logits, rows), of_others], 0)
    return tf.tensor_scatter_nd_update(logits, rows[:, None], augment.mean_over_views(of_views))
