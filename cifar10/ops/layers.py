"""Convolution, normalisation and dense layers: the only place that makes variables.

A model is a function of `Layers` and images. `Layers` knows what the model need not know: whether
it trains, the layout and type of tensors, how towers share statistics, and where variables come
from.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from cifar10 import kernels
from cifar10.ops import operations, variables
from cifar10.ops.operations import CUSTOM_OPS, TENSORFLOW, choose, convolve
from cifar10.ops.variables import SeparateVariables, Spec, VariableSource
from cifar10.schema import NUM_CLASSES


class NormStatistics(NamedTuple):
    """The batch statistics of one batch-norm layer in one tower."""

    mean: tf.Tensor  # [channels]
    variance: tf.Tensor  # [channels], population variance (divided by count)
    count: tf.Tensor  # scalar: values per channel


@dataclasses.dataclass
class Layers:
    """The layers of one tower.

    Attributes:
      training: whether to use batch statistics (True) or moving statistics (False).
      data_format: `channels_last` or `channels_first`.
      compute_dtype: the type of activations; variables and statistics stay float32.
      norm: `tower` or `off`, see `TrainConfig.batch_norm`.
      norm_epsilon: the number that is added to the variance.
      kernels: the algorithm of convolutions that it supports, see `cifar10.ops.operations`; unless
        it is TENSORFLOW, activations use custom ops, too.
      num_classes: the number of classes, which is that of the logits.
      still_trains: whether the weights that train only in the first epochs still train, a bool
        scalar tensor; None: they do.
      source: where the variables come from.
      statistics: one entry per batch-norm layer, in training.
      convolutions: the name of each convolution's algorithm, by the convolution's scope.
    """

    training: bool
    data_format: str = "channels_last"
    compute_dtype: Any = tf.float32
    norm: str = "tower"
    norm_epsilon: float = 1e-5
    kernels: str = TENSORFLOW
    num_classes: int = NUM_CLASSES
    still_trains: Optional[tf.Tensor] = None
    source: VariableSource = dataclasses.field(default_factory=SeparateVariables)
    statistics: list[NormStatistics] = dataclasses.field(default_factory=list, init=False)
    convolutions: dict[str, str] = dataclasses.field(default_factory=dict, init=False)

    # Initialisers, for models, whose modules load no TensorFlow.
    he = staticmethod(variables.he)
    partial_identity = staticmethod(variables.partial_identity)
    uniform = staticmethod(variables.uniform)

    def for_tower(
        self, source: VariableSource, still_trains: Optional[tf.Tensor] = None
    ) -> "Layers":
        """Makes the layers of one tower: the same settings, but its own variables and records."""
        return dataclasses.replace(self, source=source, still_trains=still_trains)

    def variable(self, name: str, shape: Sequence[int], initializer: Any, kind: str) -> tf.Tensor:
        """Makes or reuses a variable; every variable of every model comes from here.

        Args:
          name: the variable's name inside the current variable scope.
          shape: the variable's shape.
          initializer: a TensorFlow initializer.
          kind: one of the kinds in `cifar10.ops.variables`, such as `KERNEL`.

        Returns:
          For a weight, this tower's float32 copy, which is read once per step; for statistics,
          their value, or None in training, which packs them.
        """
        scope = tf.get_variable_scope().name
        full_name = f"{scope}/{name}" if scope else name
        return self.source.get(Spec(full_name, tuple(map(int, shape)), initializer, kind))

    def scope(self, name: str) -> Any:
        """Opens a variable scope: names of variables inside it begin with `name`."""
        return tf.variable_scope(name)

    def cast_images(self, images: tf.Tensor) -> tf.Tensor:
        """Converts images, float32 [N, 32, 32, 3], to this tower's layout and type."""
        if self.data_format == "channels_first":
            images = tf.transpose(images, [0, 3, 1, 2])
        return tf.cast(images, self.compute_dtype)

    def cast(self, x: tf.Tensor) -> tf.Tensor:
        """Casts any tensor to this tower's type; its layout stays the same."""
        return tf.cast(x, self.compute_dtype)

    def to_float32(self, x: tf.Tensor) -> tf.Tensor:
        """Casts any tensor to float32."""
        return tf.cast(x, tf.float32)

    def flatten(self, x: tf.Tensor) -> tf.Tensor:
        """Reshapes a tensor [N, ...] to [N, features]."""
        return tf.reshape(x, [-1, x.shape[1:].num_elements()])

    def conv(
        self,
        x: tf.Tensor,
        filters: int,
        kernel: int,
        strides: int = 1,
        *,
        initializer: Any = None,
        after_trained_until: bool = False,
    ) -> tf.Tensor:
        """Computes a convolution without bias, with `SAME` padding.

        With 3x3 filters at stride 2, an image of even side is padded by (0, 1), where PyTorch's
        `padding=1` and TensorFlow's tutorial pad by (1, 1). So filters are applied one position
        further on.

        Args:
          x: images in this tower's layout, [N, height, width, inputs] or channels first.
          filters: the number of filters.
          kernel: the side of a filter, in pixels.
          strides: the stride in both directions.
          initializer: the kernel's initialiser; by default He's (arXiv:1502.01852).
          after_trained_until: whether the layers before this one train only in the first epochs, so
            that they need no gradient afterwards.
        """
        with tf.variable_scope(None, "conv"):
            weights, settings, algorithm = self._kernel(x, filters, kernel, strides, initializer)
            trains = self.still_trains if after_trained_until else None
            return convolve(algorithm, x, weights, settings, trains)

    def conv_norm_relu(
        self,
        x: tf.Tensor,
        filters: int,
        kernel: int,
        strides: int = 1,
        shortcut: Optional[tf.Tensor] = None,
        *,
        first_scale: float = 1.0,
    ) -> tf.Tensor:
        """Computes `conv`, then `batch_norm_relu`; in evaluation, where it fits, by one custom op.

        Args:
          x: see `conv`.
          filters: see `conv`.
          kernel: see `conv`.
          strides: see `conv`.
          shortcut: what is added before ReLU, like the convolution's output; None: nothing.
          first_scale: the initial value of the normalisation's scale.
        """
        with tf.variable_scope(None, "conv"):
            weights, settings, algorithm = self._kernel(x, filters, kernel, strides)
        if self.training or self.norm == "off" or algorithm != CUSTOM_OPS:
            y = convolve(algorithm, x, weights, settings)
            return self.batch_norm_relu(y, shortcut, first_scale=first_scale)
        with tf.variable_scope(None, "batch_norm"):
            gamma, beta, mean, variance = self._norm_weights(filters, True, first_scale)
        shortcuts = [] if shortcut is None else [shortcut]
        # Only the output is rounded to the type of `x`; the op has no gradient.
        return kernels.load().cifar10_conv3x3_norm_relu(
            x, weights, gamma, beta, mean, variance, shortcuts, epsilon=self.norm_epsilon
        )

    def _kernel(
        self, x: tf.Tensor, filters: int, kernel: int, strides: int, initializer: Any = None
    ) -> tuple[tf.Tensor, dict[str, Any], str]:
        """Returns the weights of a convolution, its settings, and the algorithm chosen for it."""
        shape = [kernel, kernel, x.shape[self._channel_axis], filters]
        weights = self.variable("kernel", shape, initializer or self.he(), variables.KERNEL)
        weights = tf.cast(weights, self.compute_dtype)
        window = [1, strides, strides, 1] if self._layout == "NHWC" else [1, 1, strides, strides]
        settings = {"strides": window, "padding": "SAME", "data_format": self._layout}
        algorithm = choose(x, weights, settings, self.kernels)
        self.convolutions[tf.get_variable_scope().name] = algorithm
        return weights, settings, algorithm

    def whitening(self, x: tf.Tensor, size: int) -> tf.Tensor:
        """Projects each patch onto the principal components of the training images' patches.

        [N, height, width, channels] -> [N, height - size + 1, width - size + 1, 2 * patch], where
        a patch has size * size * channels numbers. The projection and its negative are computed
        from the data (`cifar10.models.fastnet`); a bias trains in the first epochs.
        """
        with tf.variable_scope("whitening"):
            channels = x.shape[self._channel_axis]
            outputs = 2 * size * size * channels
            zeros = tf.zeros_initializer()
            projection = self.variable(
                "projection", [size, size, channels, outputs], zeros, variables.NON_TRAINABLE
            )
            bias = self.variable("bias", [outputs], zeros, variables.TRAINED_UNTIL)
            weights = tf.cast(projection, self.compute_dtype)
            y = tf.nn.conv2d(x, weights, 1, "VALID", data_format=self._layout)
            return tf.nn.bias_add(y, tf.cast(bias, self.compute_dtype), data_format=self._layout)

    def relu(self, x: tf.Tensor) -> tf.Tensor:
        """Applies ReLU."""
        return tf.nn.relu(x)

    def gelu(self, x: tf.Tensor) -> tf.Tensor:
        """Applies GELU in its tanh form (arXiv:1606.08415)."""
        return operations.gelu(x, self.kernels != TENSORFLOW)

    def dense(
        self, x: tf.Tensor, units: int, *, initializer: Any = None, bias: bool = True
    ) -> tf.Tensor:
        """Computes a dense layer, [N, features] -> [N, units], in the type of `x`.

        The default initialisation is Glorot's. A model's last dense layer takes float32, so that no
        logit is rounded before the loss.
        """
        with tf.variable_scope(None, "dense"):
            initializer = initializer or tf.glorot_uniform_initializer()
            kernel = self.variable("kernel", [x.shape[1], units], initializer, variables.KERNEL)
            y = tf.matmul(x, tf.cast(kernel, x.dtype))
            if not bias:
                return y
            offset = self.variable("bias", [units], tf.zeros_initializer(), variables.BIAS)
            return tf.nn.bias_add(y, tf.cast(offset, x.dtype))

    def max_pool(self, x: tf.Tensor, size: int) -> tf.Tensor:
        """Takes the maximum of size x size windows, stride `size`; drops incomplete windows."""
        return tf.nn.max_pool2d(x, size, size, "VALID", data_format=self._layout)

    def average_pool(self, x: tf.Tensor, size: int) -> tf.Tensor:
        """Takes the mean of size x size windows, stride `size`; drops incomplete windows."""
        return tf.nn.avg_pool2d(x, size, size, "VALID", data_format=self._layout)

    def global_average_pool(self, x: tf.Tensor) -> tf.Tensor:
        """Averages [N, height, width, channels] (or channels first) to float32 [N, channels]."""
        axes = [1, 2] if self.data_format == "channels_last" else [2, 3]
        return tf.reduce_mean(tf.cast(x, tf.float32), axes)

    def pad_channels(self, x: tf.Tensor, filters: int) -> tf.Tensor:
        """Pads with zero channels, half on each side, up to `filters`."""
        missing = filters - x.shape[self._channel_axis]
        paddings = [[0, 0]] * 4
        paddings[self._channel_axis] = [missing // 2, missing - missing // 2]
        return tf.pad(x, paddings)

    def batch_norm(
        self, x: tf.Tensor, scale: bool = True, *, first_scale: float = 1.0
    ) -> tf.Tensor:
        """Applies batch normalisation with offset (arXiv:1502.03167); statistics are float32.

        Args:
          x: images in this tower's layout, [N, height, width, channels] or channels first.
          scale: whether the layer also has a trained scale.
          first_scale: the initial value of the scale.
        """
        with tf.variable_scope(None, "batch_norm"):
            channels = x.shape[self._channel_axis]
            gamma, beta, *statistics = self._norm_weights(channels, scale, first_scale)
            if self.norm == "off":
                scales, offsets = (
                    value if self.data_format == "channels_last" else value[:, None, None]
                    for value in (tf.cast(gamma, x.dtype), tf.cast(beta, x.dtype))
                )
                return x * scales + offsets
            settings = {"epsilon": self.norm_epsilon, "data_format": self._layout}
            if not self.training:
                settings.update(mean=statistics[0], variance=statistics[1], is_training=False)
                return tf.nn.fused_batch_norm(x, gamma, beta, **settings)[0]
            count = tf.cast(tf.size(x) // channels, tf.float32)
            y, mean, variance = tf.nn.fused_batch_norm(x, gamma, beta, **settings)
            # The op returns the sample variance; towers are combined by population variances.
            variance *= (count - 1.0) / count
            self.statistics.append(NormStatistics(mean, variance, tf.size(x) // channels))
            return y

    def batch_norm_relu(
        self, x: tf.Tensor, shortcut: Optional[tf.Tensor] = None, *, first_scale: float = 1.0
    ) -> tf.Tensor:
        """Applies `batch_norm`, adds `shortcut`, which is like `x`, and applies `relu`."""
        custom = self.kernels != TENSORFLOW and self.training and self.norm == "tower"
        custom &= self.data_format == "channels_last" and x.dtype in (tf.float32, tf.bfloat16)
        if not custom or x.shape[3] % kernels.CHANNELS:
            y = self.batch_norm(x, first_scale=first_scale)
            return self.relu(y if shortcut is None else y + shortcut)
        channels = x.shape[self._channel_axis]
        with tf.variable_scope(None, "batch_norm"):
            gamma, beta, *_ = self._norm_weights(channels, True, first_scale)
            shortcuts = [] if shortcut is None else [shortcut]
            # Mean and population variance are float32, and no gradient flows through them.
            y, mean, variance = kernels.load().cifar10_norm_relu(
                x, gamma, beta, shortcuts, epsilon=self.norm_epsilon
            )
        self.statistics.append(NormStatistics(mean, variance, tf.size(x) // channels))
        return y

    def _norm_weights(self, channels: int, scale: bool, first_scale: float) -> list[Any]:
        """Returns scale, offset and, unless there is none, mean and variance of each channel."""
        shape = [channels]
        ones, zeros = tf.ones_initializer(), tf.zeros_initializer()
        first = tf.constant_initializer(first_scale)
        gamma = self.variable("gamma", shape, first, variables.NORM) if scale else tf.ones(shape)
        beta = self.variable("beta", shape, zeros, variables.OFFSET)
        if self.norm == "off":
            return [gamma, beta]
        moving_mean = self.variable("moving_mean", shape, zeros, variables.MEAN)
        moving_variance = self.variable("moving_variance", shape, ones, variables.VARIANCE)
        return [gamma, beta, moving_mean, moving_variance]

    @property
    def _channel_axis(self) -> int:
        return 3 if self.data_format == "channels_last" else 1

    @property
    def _layout(self) -> str:
        return "NHWC" if self.data_format == "channels_last" else "NCHW"
