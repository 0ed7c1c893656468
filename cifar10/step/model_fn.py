"""The Estimator's model_fn: an EstimatorSpec for TRAIN, EVAL and PREDICT."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.input import augment
from cifar10.input.records import CIFAR10_DEVIATION, CIFAR10_MEAN
from cifar10.models import Model, build
from cifar10.models.layers import Layers
from cifar10.ops.convolution import ConvAlgorithms
from cifar10.schema import CHANNELS, HEIGHT, WIDTH
from cifar10.step import towers, training_step
from cifar10.step.devices import DevicePlan
from cifar10.step.losses import cross_entropy
from cifar10.step.metrics import confusion_matrix
from cifar10.step.replicas import Replication
from cifar10.step.update import StepSettings
from cifar10.weights.separate import SeparateVariables

# Tensors that hooks look up by name.
IMAGES, LABELS, PROBABILITIES = "eval_images", "eval_labels", "eval_probabilities"
SAMPLES = "sample_summaries"  # collection of pictures, which are drawn less often than curves
_SAMPLES_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class ModelParams:
    """What the model_fn needs beside features and labels.

    Attributes:
      config: the run's settings.
      plan: this machine's devices.
      num_examples: images in the training split.
      total_steps: global step at which training ends.
      channel_mean: of the training images; kept in the checkpoint for evaluation and export.
      channel_deviation: likewise.
      replication: this process's place among those that train; None: it trains alone.
      should_end_all: when the chief's training ends, whether that of all replicas does.
      values_from_data: first values that are made from the training images, by variable.
      augments_test: in EVAL, also answers to each image mirrored and shifted.
      fuses: XLA can compile activations on the towers' devices.
    """

    config: TrainConfig
    plan: DevicePlan
    num_examples: int = 1
    total_steps: int = 1
    channel_mean: tuple[float, ...] = CIFAR10_MEAN
    channel_deviation: tuple[float, ...] = CIFAR10_DEVIATION
    replication: Optional[Replication] = None
    should_end_all: Callable[[], bool] = lambda: True
    values_from_data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    augments_test: bool = False
    fuses: bool = True

    @property
    def place(self) -> Replication:
        """The replication; that of a process alone where none is given."""
        return self.replication or Replication.alone(self.plan)

    @property
    def examples_per_step(self) -> int:
        """Training images that one global step stands for."""
        return self.place.examples_per_step(self.config.train_batch_size)


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
    if mode == tf.estimator.ModeKeys.TRAIN:
        with tf.device(params.place.task_device):
            return _train_spec(features, labels, params)
    make_layers = functools.partial(_layers, params, False)
    if params.augments_test and mode == tf.estimator.ModeKeys.EVAL:
        views = augment.test_views(features)
        all_logits = _logits(make_layers, views, params)
        logits = all_logits[: tf.shape(features)[0]]
        augmented = augment.mean_over_views(all_logits)
    else:
        logits = _logits(make_layers, features, params)
        augmented = None
    probabilities = tf.nn.softmax(logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        tf.identity(features, IMAGES)
        return _eval_spec(labels, logits, probabilities, augmented)
    return tf.estimator.EstimatorSpec(
        mode, predictions={"classes": tf.argmax(logits, axis=1), "probabilities": probabilities}
    )


def _train_spec(features: Any, labels: Any, params: ModelParams) -> Any:
    tf.summary.image("augmented_samples", features, _SAMPLES_SHOWN, collections=[SAMPLES])
    return build_step(features, labels, params).spec()


def build_step(features: Any, labels: Any, params: ModelParams) -> training_step.Step:
    """Builds a training step without what Estimator wants around it.

    Args:
      features: uint8 [N, 32, 32, 3].
      labels: int64 [N].
      params: settings, devices, data statistics.
    """
    config, place = params.config, params.place
    make_layers = functools.partial(_layers, params, True)
    plain = build(config)
    _channel_variables(params, place.variable_devices[0])
    model = _standardised(plain, params.channel_mean, params.channel_deviation)
    layout = training_step.lay_out(plain, make_layers, params.values_from_data)
    settings = StepSettings(
        config,
        place,
        params.plan.loss_scaling,
        params.num_examples,
        params.total_steps,
        params.plan.reduction,
        params.should_end_all,
    )
    return training_step.build(model, layout, make_layers, (features, labels), settings)


def _logits(make_layers: Any, images: Any, params: ModelParams) -> Any:
    """Logits [N, 10] of images uint8 [N, 32, 32, 3], from variables that a checkpoint fills."""
    plan = params.plan
    filled = towers.fill_towers(images, plan.num_towers)
    no_labels = tf.zeros([tf.shape(filled)[0]], tf.int64)
    mean, deviation = _channel_variables(params, plan.variable_devices[0])
    model = _standardised(build(params.config), mean.read_value(), deviation.read_value())
    source = SeparateVariables(plan.variable_devices[0])
    parts = towers.build_towers(
        model, make_layers, filled, no_labels, plan.tower_devices, [source] * plan.num_towers
    )
    return towers.gather_towers([tower.logits for tower in parts])[: tf.shape(images)[0]]


def _channel_variables(params: ModelParams, device: str) -> tuple[Any, Any]:
    """Mean and deviation of the training images' channels, float32 [3] each.

    They are saved with the weights, so that evaluation, prediction and export need nothing but the
    checkpoint.
    """
    with tf.variable_scope("input", reuse=tf.AUTO_REUSE), tf.device(device):
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
    return mean, deviation


def _standardised(model: Model, mean: Any, deviation: Any) -> Model:
    """Wraps a model so that it takes uint8 images and sees channels of mean 0 and deviation 1.

    Each tower standardises its own part of the batch.

    Args:
      model: (Layers, standardised images) -> logits.
      mean: of the channels, three numbers or float32 [3].
      deviation: likewise.

    Returns:
      (Layers, images uint8 [N, 32, 32, 3]) -> logits.
    """
    # By rows of 32 x 3 numbers: to broadcast three numbers at a time takes five times as long.
    offset, factor = (
        tf.tile(tf.convert_to_tensor(value, tf.float32), [WIDTH])
        for value in (mean, 1.0 / tf.convert_to_tensor(deviation, tf.float32))
    )

    def standardised(layers: Layers, images: Any) -> Any:
        rows = tf.reshape(images, [-1, WIDTH * CHANNELS])
        values = (tf.cast(rows, tf.float32) - offset) * factor
        return model(layers, tf.reshape(values, [-1, HEIGHT, WIDTH, CHANNELS]))

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
        # Compiled for the shape of a batch, which outside of training may change.
        fuses=training and params.fuses,
        bf16_on_cpu=training and plan.compute_dtype == tf.bfloat16 and not plan.on_gpus,
        algorithms=_algorithms(params) if training else ConvAlgorithms(),
        **shared,
    )


def _algorithms(params: ModelParams) -> ConvAlgorithms:
    """How training computes convolutions."""
    plan = params.plan
    if plan.on_gpus:
        return ConvAlgorithms()
    is_bf16 = plan.compute_dtype == tf.bfloat16
    return ConvAlgorithms(
        own=plan.own_kernels,
        # A CPU's bfloat16 is twice as fast, so it takes more to make up for.
        winograd_saving=5.0 if is_bf16 else 1.0,
        by_images=is_bf16,
    )


def _eval_spec(labels: Any, logits: Any, probabilities: Any, augmented: Any) -> Any:
    """Metrics over every image of the split: sums, so that any batch size gives the same."""
    more = {}
    if augmented is not None:
        more["augmented_accuracy"] = tf.metrics.accuracy(labels, tf.argmax(augmented, axis=1))
    losses = cross_entropy(labels, logits)
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
            **more,
        },
    )
