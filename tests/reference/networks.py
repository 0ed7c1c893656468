"""The networks in float64, layer by layer, written from the papers without code of `cifar10`.

A convolution is a matrix product with the patches that the filters see, so neither its outputs nor
its gradients come from TensorFlow's convolution ops, which the pipeline uses.

ReLUs and max poolings make decisions. Where a number is within rounding error of the threshold,
float32 may decide differently from float64. A gradient then differs by everything that flows
through this place, not by a rounding error. So the pipeline's decisions can be fed to the
reference; `Pass.doubts` tells how much they change the output.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

Tensor = Any

# Mean and deviation of the red, green and blue of CIFAR-10's 50,000 training images.
MEAN, DEVIATION = (125.31, 122.95, 113.87), (62.99, 62.09, 66.70)


class Pass:
    """One pass of a batch through a network.

    Args:
      values: float64 tensors by their names in a checkpoint.
      normalises_by: what batch normalisation uses: `batch` or `moving` statistics.
      groups: number of equal parts of the batch, one for each tower; batch normalisation uses the
        statistics of each part.
      epsilon: number that batch normalisation adds to the variance.

    Attributes:
      moments: statistics of the whole batch, by the names of the moving statistics.
      decisions: decisions of each ReLU and max pooling, in order; other decisions can be fed.
      doubts: for each of these layers, how much the fed decisions change its output, as a share of
        the largest output.
    """

    def __init__(
        self, values: Mapping[str, Tensor], normalises_by: str, groups: int, epsilon: float
    ) -> None:
        self._values, self._normalises_by = values, normalises_by
        self._groups, self._epsilon = groups, epsilon
        self.moments: dict[str, Tensor] = {}
        self.decisions: list[Tensor] = []
        self.doubts: list[Tensor] = []

    def conv(self, x: Tensor, name: str, stride: int = 1) -> Tensor:
        """Returns a 3x3 convolution of x, [N, H, W, C] -> [N, H / stride, W / stride, filters].

        At stride 1, a border of one zero on each side pads the image. At stride 2, it has zeros at
        the bottom and the right only, so the first filter covers the first three positions.
        """
        border = (1, 1) if stride == 1 else (0, 1)
        padded = tf.pad(x, [(0, 0), border, border, (0, 0)])
        return self._correlate(padded, self._values[f"{name}/kernel"], x.shape[1] // stride, stride)

    def whiten(self, x: Tensor) -> Tensor:
        """Returns the 2x2 convolution without padding, with a bias; its filters do not train."""
        filters = self._values["model/whitening/projection"]
        return self._correlate(x, filters, 31, 1) + self._values["model/whitening/bias"]

    def _correlate(self, x: Tensor, kernel: Tensor, size: int, stride: int) -> Tensor:
        """Returns y[r, c] = sum over i, j of x[stride r + i, stride c + j] kernel[i, j].

        Args:
          x: images, [N, H, W, C].
          kernel: filters, [side, side, C, filters].
          size: height and width of the result.
          stride: distance between two filter positions.
        """
        side, _, inputs, filters = kernel.shape
        reach = stride * (size - 1) + 1
        seen = [
            x[:, i : i + reach : stride, j : j + reach : stride]
            for i in range(side)
            for j in range(side)
        ]
        rows = tf.reshape(tf.concat(seen, 3), [-1, side * side * inputs])
        return tf.reshape(rows @ tf.reshape(kernel, [-1, filters]), [-1, size, size, filters])

    def batch_norm(self, x: Tensor, name: str) -> Tensor:
        """Normalises x: Ioffe & Szegedy 2015, arXiv:1502.03167, algorithm 1 (inference: 2)."""
        gamma, beta = self._values.get(f"{name}/gamma", 1.0), self._values[f"{name}/beta"]
        moving = f"{name}/moving_mean", f"{name}/moving_variance"
        if self._normalises_by == "moving":
            mean, variance = (self._values[statistic] for statistic in moving)
            return gamma * (x - mean) / tf.sqrt(variance + self._epsilon) + beta
        mean, variance = _moments(x)
        count = float(np.prod(x.shape[:3]))
        # Algorithm 2, step 10: inference uses the unbiased variance.
        self.moments.update(zip(moving, (mean, variance * count / (count - 1))))
        parts = []
        for part in tf.split(x, self._groups):
            mean, variance = _moments(part)
            parts.append(gamma * (part - mean) / tf.sqrt(variance + self._epsilon) + beta)
        return tf.concat(parts, 0)

    def relu(self, x: Tensor) -> Tensor:
        """Returns max(x, 0), where the decisions tell which numbers are above 0."""
        decision = self._decide(tf.cast(x > 0, tf.float64))
        return self._doubt(tf.maximum(x, 0.0), x * decision)

    def max_pool(self, x: Tensor, size: int) -> Tensor:
        """Returns the largest of each size x size window; drops positions left over at the edge."""
        count, rows, channels = x.shape[0], x.shape[1] // size, x.shape[3]
        x = tf.reshape(
            x[:, : rows * size, : rows * size], [count, rows, size, rows, size, channels]
        )
        windows = tf.reshape(
            tf.transpose(x, [0, 1, 3, 5, 2, 4]), [count, rows, rows, channels, size * size]
        )
        decision = tf.one_hot(self._decide(tf.argmax(windows, -1)), size * size, dtype=tf.float64)
        return self._doubt(tf.reduce_max(windows, -1), tf.reduce_sum(windows * decision, -1))

    def dense(self, x: Tensor, name: str) -> Tensor:
        """Returns x W + b; without b if the layer has none."""
        return x @ self._values[f"{name}/kernel"] + self._values.get(f"{name}/bias", 0.0)

    def _decide(self, own: Tensor) -> Tensor:
        decision = tf.placeholder_with_default(own, own.shape)
        self.decisions.append(decision)
        return decision

    def _doubt(self, exact: Tensor, decided: Tensor) -> Tensor:
        largest = tf.reduce_max(tf.abs(exact))
        self.doubts.append(tf.reduce_max(tf.abs(exact - decided)) / largest)
        return decided


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns mean and population variance of each channel, over images and positions."""
    mean = tf.reduce_mean(x, [0, 1, 2])
    return mean, tf.reduce_mean(tf.square(x - mean), [0, 1, 2])


def _gelu(x: Tensor) -> Tensor:
    """Returns GELU with tanh: Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2."""
    return 0.5 * x * (1.0 + tf.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _shortcut(x: Tensor, stride: int) -> Tensor:
    """Returns shortcut A of He et al. 2015, arXiv:1512.03385, section 4.2: zeros for new channels.

    Two details are those of TensorFlow's tutorial: it takes means of 2x2 positions where the paper
    takes every second position, and puts half of the zeros before the channels and half after them.
    """
    if stride == 1:
        return x
    means = (x[:, ::2, ::2] + x[:, ::2, 1::2] + x[:, 1::2, ::2] + x[:, 1::2, 1::2]) / 4
    new = x.shape[3] // 2
    return tf.pad(means, [(0, 0), (0, 0), (0, 0), (new, new)])


def _block_v1(run: Pass, x: Tensor, name: str, stride: int) -> Tensor:
    """Returns the block of He et al. 2015, arXiv:1512.03385, equation 1."""
    y = run.relu(run.batch_norm(run.conv(x, f"{name}/conv", stride), f"{name}/batch_norm"))
    y = run.batch_norm(run.conv(y, f"{name}/conv_1"), f"{name}/batch_norm_1")
    return run.relu(y + _shortcut(x, stride))


def _block_v2(run: Pass, x: Tensor, name: str, stride: int) -> Tensor:
    """Returns the block of He et al. 2016, arXiv:1603.05027, figure 4(e) and equation 5.

    The first block is like the others. In the paper's appendix, its shortcut begins after its first
    ReLU.
    """
    y = run.conv(run.relu(run.batch_norm(x, f"{name}/batch_norm")), f"{name}/conv", stride)
    y = run.conv(run.relu(run.batch_norm(y, f"{name}/batch_norm_1")), f"{name}/conv_1")
    return y + _shortcut(x, stride)


def resnet(run: Pass, images: Tensor, is_v2: bool) -> Tensor:
    """Returns the logits of ResNet-8, arXiv:1512.03385, section 4.2: 6n+2 layers, n = 1."""
    x = run.conv(images, "model/stem/conv")
    if not is_v2:
        x = run.relu(run.batch_norm(x, "model/stem/batch_norm"))
    for stage in range(3):
        name, stride = f"model/stage_{stage}/block_0", 2 if stage else 1
        x = (_block_v2 if is_v2 else _block_v1)(run, x, name, stride)
    if is_v2:
        x = run.relu(run.batch_norm(x, "model/head/batch_norm"))
    return run.dense(tf.reduce_mean(x, [1, 2]), "model/head/dense")


def fastnet(run: Pass, images: Tensor, layers: int) -> Tensor:
    """Returns the logits of airbench94's network, or airbench96's: Jordan 2024, arXiv:2404.00498.

    The first has two `layers` in a group. The second has three, and a shortcut past the last two.
    """
    x = _gelu(run.whiten(images))
    for group in range(3):
        name = f"model/group_{group}"
        x = run.max_pool(run.conv(x, f"{name}/conv"), 2)
        x = first = _gelu(run.batch_norm(x, f"{name}/batch_norm"))
        for layer in range(1, layers):
            x = run.batch_norm(run.conv(x, f"{name}/conv_{layer}"), f"{name}/batch_norm_{layer}")
            if layers == 3 and layer == 2:
                x += first
            x = _gelu(x)
    return run.dense(tf.squeeze(run.max_pool(x, 3), [1, 2]), "model/head/dense") / 9


def mlp(run: Pass, images: Tensor) -> Tensor:
    """Returns the logits of an MLP whose inputs are in the order of rows, columns, channels."""
    x = tf.reshape(images, [-1, 32 * 32 * 3])
    return run.dense(run.relu(run.dense(x, "model/dense")), "model/dense_1")


NETWORKS = {
    "resnet": lambda run, images: resnet(run, images, is_v2=False),
    "resnet_v2": lambda run, images: resnet(run, images, is_v2=True),
    "fastnet": lambda run, images: fastnet(run, images, layers=2),
    "fastnet_large": lambda run, images: fastnet(run, images, layers=3),
    "mlp": mlp,
}


def logits_of(model: str, run: Pass, images: Tensor) -> Tensor:
    """Returns logits, [N, 10], of images, float64 [N, 32, 32, 3] with values 0 to 255."""
    return NETWORKS[model](run, (images - MEAN) / DEVIATION)


def loss_of(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Returns the cross-entropy with label smoothing: Szegedy et al. 2015, arXiv:1512.00567."""
    targets = (1 - smoothing) * tf.one_hot(labels, 10, dtype=tf.float64) + smoothing / 10
    log_probabilities = logits - tf.reduce_logsumexp(logits, axis=1, keepdims=True)
    return -tf.reduce_mean(tf.reduce_sum(targets * log_probabilities, axis=1))
