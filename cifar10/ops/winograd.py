"""3x3 convolutions by Winograd's minimal filtering: fewer multiplications, in matrix products.

A row of m outputs of a filter of three weights takes 3 m multiplications directly, but only m + 2
if both the row and the filter are first evaluated, as polynomials, at m + 2 points (Lavin & Gray
2015, arXiv:1509.09308). In two dimensions, 49 outputs cost 81 multiplications instead of 441. At
each point, a matrix product combines an image's channels with the filters, which a CPU computes at
its peak. Evaluation and interpolation are linear, too. Here they are matrix products with small
constant matrices, so that TensorFlow derives both gradients, with as few multiplications.

The price is precision: the larger a tile, the larger the terms that cancel in the interpolation.
Errors are at most 2e-5 of the outputs' size here (root mean square); those of a direct convolution
are 3e-7 in float32 and 3e-3 in bfloat16.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

_SIDE = 3  # side of a filter

# Points of evaluation, besides infinity, by the number of a tile's outputs: pairs p and -p, small
# but far apart, found by experiment (tests check the error).
_POINTS = {
    3: (0.5, -0.5, 1.5, -1.5),
    4: (0.0, 0.6, -0.6, 1.3, -1.3),
    5: (0.4, -0.4, 0.9, -0.9, 1.8, -1.8),
    7: (0.3, -0.3, 0.7, -0.7, 1.2, -1.2, 2.4, -2.4),
}


# The fewest multiplications in a piece of a batch; with fewer, the overhead of its thirty ops is
# noticeable.
_FEWEST_PRODUCTS = 25_000_000


class _Axis(NamedTuple):
    """The matrices that transform one axis of an image, for P points and T tiles.

    Attributes:
      inputs: [P, T, size], evaluates the inputs of each tile; inputs outside the image are zero.
      filters: [P, 3], evaluates a filter.
      outputs: [size, P, T], interpolates outputs from products; outputs outside the image are
        dropped.
    """

    inputs: Any
    filters: Any
    outputs: Any

    @property
    def points(self) -> int:
        """The number of points, P."""
        return len(self.filters)

    @property
    def tiles(self) -> int:
        """The number of tiles, T."""
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
    """Computes a 3x3 convolution, stride 1, `SAME` padding.

    Args:
      x: [N, height, width, inputs], a fully known shape.
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
    """Returns how many times fewer multiplications this takes than a direct convolution of `x`."""
    _, height, width, _ = x.shape.as_list()
    made = [axis.points * axis.tiles for axis in (_axis(height), _axis(width))]
    return height * width * _SIDE**2 / (made[0] * made[1])


def _pieces(x: tf.Tensor, weights: tf.Tensor) -> int:
    """Returns the number of pieces into which a batch is split.

    Smaller pieces fit better into the caches. But the filters are read, and their gradient is
    written, once per piece. So a piece has at least twice as many tiles as the harmonic mean of
    inputs and filters; the tiles are then four times as large as the filters.
    """
    count, height, width, inputs = x.shape.as_list()
    filters = weights.shape.as_list()[3]
    rows, columns = _axis(height), _axis(width)
    products = rows.points * columns.points * inputs * filters  # a tile
    tiles = max(4 * inputs * filters / (inputs + filters), _FEWEST_PRODUCTS / products)
    images = tiles / (rows.tiles * columns.tiles)
    return max(n for n in range(1, count + 1) if count % n == 0 and (n == 1 or count / n >= images))


def _convolve(x: tf.Tensor, weights: tf.Tensor, steps: _Steps) -> tf.Tensor:
    """Convolves images with filters that have been evaluated at the points.

    The images are transposed to [height, width, N, inputs]. So multiplying by a matrix from the
    left transforms rows or columns, and at each point the tiles of all images form the rows of one
    matrix.

    Args:
      x: [N, height, width, inputs].
      weights: [1, points of rows, points of columns, inputs, filters].
      steps: the matrices that transform the axes.

    Returns:
      [N, height, width, filters].
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
    """Splits an axis into the tiles that take the fewest multiplications."""
    tile = min(_POINTS, key=lambda outputs: -(-size // outputs) * (outputs + _SIDE - 1))
    of_inputs, of_filters, of_outputs = _transformations(tile)
    points, tiles = len(of_filters), -(-size // tile)
    # Tile t reads the inputs from t * tile - 1 on and computes the outputs from t * tile on.
    inputs = np.zeros([points, tiles, tiles * tile + _SIDE - 1])
    outputs = np.zeros([tiles * tile, points, tiles])
    for index in range(tiles):
        start = index * tile
        inputs[:, index, start : start + tile + _SIDE - 1] = of_inputs
        outputs[start : start + tile, :, index] = of_outputs
    return _Axis(inputs[:, :, 1 : size + 1], of_filters, outputs[:size])


def _transformations(tile: int) -> tuple[Any, Any, Any]:
    """Computes the matrices of one dimension for P = tile + 2 points (Lavin & Gray, section 4).

    Returns:
      Matrices `inputs` [P, P], `filters` [P, 3] and `outputs` [tile, P], such that
      outputs @ ((filters @ f) * (inputs @ x)) is x convolved with f. They are scaled so that each
      point has the same norm in all three, which keeps rounding errors smallest.
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
    # The value at infinity is a polynomial's highest coefficient.
    inputs[-1], filters[-1, -1], outputs[-1, -1] = np.poly(points)[::-1], 1, 1
    sizes = [np.linalg.norm(inputs, axis=1), np.linalg.norm(filters, axis=1)]
    sizes.append(np.linalg.norm(outputs, axis=0))
    mean = np.prod(sizes, axis=0) ** (1 / len(sizes))
    factors = [mean / one for one in sizes]
    return inputs * factors[0][:, None], filters * factors[1][:, None], outputs * factors[2]
