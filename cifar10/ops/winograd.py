"""3x3 convolutions by Winograd's minimal filtering: fewer multiplications, made by matrix products.

A row of m outputs of a filter of three weights takes 3 m multiplications, or m + 2 where both the
row and the filter are first evaluated, as polynomials, at m + 2 points (Lavin & Gray 2015,
arXiv:1509.09308). In two dimensions, 49 outputs cost 81 instead of 441. At each point an image's
channels meet the filters in a matrix product, which a CPU computes at its peak. Evaluation and
interpolation are linear, too, and here they are matrix products with small constant matrices, so
that TensorFlow derives both gradients, with as few multiplications.

What is gained is paid for with precision: the larger a tile, the larger the terms that cancel when
it is interpolated. Errors are at most 2e-5 of the outputs' size here (root mean square); those of a
direct convolution are 3e-7 in float32 and 3e-3 in bfloat16.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

_SIDE = 3  # of a filter

# Where the polynomials of a tile of so many outputs are evaluated, and at infinity besides; pairs
# of p and -p, as small as they can be and as far apart, found by trying (tests hold the error).
_POINTS = {
    3: (0.5, -0.5, 1.5, -1.5),
    4: (0.0, 0.6, -0.6, 1.3, -1.3),
    5: (0.4, -0.4, 0.9, -0.9, 1.8, -1.8),
    7: (0.3, -0.3, 0.7, -0.7, 1.2, -1.2, 2.4, -2.4),
}


# In a piece of a batch; with fewer, the overhead of its thirty ops shows.
_FEWEST_PRODUCTS = 25_000_000


class _Axis(NamedTuple):
    """How one axis of an image is transformed, for P points and T tiles.

    Attributes:
      inputs: [P, T, size], evaluates the inputs that a tile sees; what is outside is zero.
      filters: [P, 3], evaluates a filter.
      outputs: [size, P, T], interpolates outputs from products; what is outside is left out.
    """

    inputs: Any
    filters: Any
    outputs: Any

    @property
    def points(self) -> int:
        """P."""
        return len(self.filters)

    @property
    def tiles(self) -> int:
        """T."""
        return int(self.inputs.shape[1])


class _Steps(NamedTuple):
    """Matrices that an image is multiplied with, one after the other.

    Attributes:
      rows: [T * P, height], evaluates columns of T tiles at P points.
      columns: [1, P * T, width], evaluates rows of T tiles at P points.
      back_columns: [1, width, P * T], interpolates rows.
      back_rows: [height, T * P], interpolates columns.
    """

    rows: tf.Tensor
    columns: tf.Tensor
    back_columns: tf.Tensor
    back_rows: tf.Tensor


def convolve(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """A convolution, stride 1, `SAME` padding.

    Args:
      x: [N, height, width, inputs], all of them known.
      weights: [3, 3, inputs, filters] of the type of `x`.

    Returns:
      [N, height, width, filters].
    """
    _, height, width, inputs = x.shape.as_list()
    rows, columns = _axis(height), _axis(width)
    evaluate = tf.constant(np.kron(rows.filters, columns.filters), x.dtype)
    evaluated = tf.reshape(
        tf.matmul(evaluate, tf.reshape(weights, [_SIDE * _SIDE, -1])),
        [1, rows.points, columns.points, inputs, weights.shape[3]],  # The 1 is for tiles of rows.
    )
    matrices = (
        rows.inputs.swapaxes(0, 1).reshape(-1, height),
        columns.inputs.reshape(1, -1, width),
        columns.outputs.reshape(1, width, -1),
        rows.outputs.swapaxes(1, 2).reshape(height, -1),
    )
    steps = _Steps(*(tf.constant(matrix, x.dtype) for matrix in matrices))
    parts = tf.split(x, _pieces(x, weights))
    return tf.concat([_convolve(part, evaluated, steps) for part in parts], 0)


def saving(x: tf.Tensor) -> float:
    """How many times fewer products than a direct convolution makes of images of this size."""
    _, height, width, _ = x.shape.as_list()
    made = [axis.points * axis.tiles for axis in (_axis(height), _axis(width))]
    return height * width * _SIDE**2 / (made[0] * made[1])


def _pieces(x: tf.Tensor, weights: tf.Tensor) -> int:
    """Into how many pieces a batch is cut; the smaller, the better the caches hold them.

    But the filters are read, and their gradient is written, once a piece. So it has at least twice
    as many tiles as the harmonic mean of the channels: they are then four times as large.
    """
    count, height, width, inputs = x.shape.as_list()
    filters = weights.shape.as_list()[3]
    rows, columns = _axis(height), _axis(width)
    products = rows.points * columns.points * inputs * filters  # a tile
    tiles = max(4 * inputs * filters / (inputs + filters), _FEWEST_PRODUCTS / products)
    images = tiles / (rows.tiles * columns.tiles)
    return max(n for n in range(1, count + 1) if count % n == 0 and (n == 1 or count / n >= images))


def _convolve(x: tf.Tensor, weights: tf.Tensor, steps: _Steps) -> tf.Tensor:
    """Convolves some images with filters that are evaluated already.

    Images come last but for the channels, so that a row or column is transformed by a product with
    a matrix from the left, and at each point tiles and images lie together as the rows of one.

    Args:
      x: [N, height, width, inputs].
      weights: [1, points of rows, points of columns, inputs, filters].
      steps: what is done to each axis.
    """
    count, height, width, inputs = x.shape.as_list()
    _, row_points, column_points, _, filters = weights.shape.as_list()
    all_rows, all_columns = steps.rows.shape[0], steps.columns.shape[1]
    column_tiles = all_columns // column_points
    y = tf.reshape(tf.transpose(x, [1, 2, 0, 3]), [height, -1])
    y = tf.reshape(tf.matmul(steps.rows, y), [all_rows, width, -1])
    y = tf.matmul(steps.columns, y)
    y = tf.reshape(y, [-1, row_points, column_points, column_tiles * count, inputs])
    y = tf.matmul(y, weights)
    y = tf.matmul(steps.back_columns, tf.reshape(y, [all_rows, all_columns, -1]))
    y = tf.matmul(steps.back_rows, tf.reshape(y, [all_rows, -1]))
    return tf.transpose(tf.reshape(y, [height, width, count, filters]), [2, 0, 1, 3])


@functools.cache
def _axis(size: int) -> _Axis:
    """Cuts an axis into the tiles that make the fewest multiplications."""
    tile = min(_POINTS, key=lambda outputs: -(-size // outputs) * (outputs + _SIDE - 1))
    of_inputs, of_filters, of_outputs = _transformations(tile)
    points, tiles = len(of_filters), -(-size // tile)
    # Tile t sees the inputs from t * tile - 1 on and makes the outputs from t * tile on.
    inputs = np.zeros([points, tiles, tiles * tile + _SIDE - 1])
    outputs = np.zeros([tiles * tile, points, tiles])
    for index in range(tiles):
        start = index * tile
        inputs[:, index, start : start + tile + _SIDE - 1] = of_inputs
        outputs[start : start + tile, :, index] = of_outputs
    return _Axis(inputs[:, :, 1 : size + 1], of_filters, outputs[:size])


def _transformations(tile: int) -> tuple[Any, Any, Any]:
    """The matrices of one dimension, for P = tile + 2 points (Lavin & Gray 2015, section 4).

    Returns:
      [P, P] of the inputs, [P, 3] of the filter and [tile, P] of the outputs: with these,
      outputs @ ((filters @ f) * (inputs @ x)) is x, convolved with f. Each point's factor is spread
      so that its three parts are equally large: the sums then lose the least.
    """
    points = np.array(_POINTS[tile])
    count = len(points) + 1
    inputs, filters, outputs = (
        np.zeros(size) for size in ((count,) * 2, (count, 3), (tile, count))
    )
    for index, point in enumerate(points):
        others = np.delete(points, index)
        inputs[index, :-1] = np.poly(others)[::-1]
        filters[index] = point ** np.arange(_SIDE) / np.prod(point - others)
        outputs[:, index] = point ** np.arange(tile)
    # The point at infinity: what a polynomial's highest coefficient says.
    inputs[-1], filters[-1, -1], outputs[-1, -1] = np.poly(points)[::-1], 1, 1
    sizes = [np.linalg.norm(inputs, axis=1), np.linalg.norm(filters, axis=1)]
    sizes.append(np.linalg.norm(outputs, axis=0))
    mean = np.prod(sizes, axis=0) ** (1 / len(sizes))
    factors = [mean / one for one in sizes]
    return inputs * factors[0][:, None], filters * factors[1][:, None], outputs * factors[2]
