"""Random 64-bit words as a function of a number: SplitMix64 (Steele et al. 2014).

Each word is computed from its number alone, so that an image's random numbers depend on its
position and not on the other images of its batch.
"""

from typing import Any

import tensorflow.compat.v1 as tf

_INCREMENT = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31


def words(numbers: Any) -> Any:
    """Returns the words at the given places of SplitMix64's sequence with seed 0.

    Args:
      numbers: the places, uint64 of any shape.

    Returns:
      uint64 of the shape of `numbers`.
    """
    state = numbers * tf.constant(_INCREMENT, tf.uint64)
    for shift, factor in _ROUNDS:
        state = _xor_shifted(state, shift) * tf.constant(factor, tf.uint64)
    return _xor_shifted(state, _LAST_SHIFT)


def _xor_shifted(state: Any, bits: int) -> Any:
    return tf.bitwise.bitwise_xor(
        state, tf.bitwise.right_shift(state, tf.constant(bits, tf.uint64))
    )
