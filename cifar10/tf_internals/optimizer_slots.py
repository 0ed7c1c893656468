"""Variables that an update rule keeps beside the weights.

Touches: `_zeros_slot` of `tf.train.Optimizer`, which is for subclasses.

Why: `get_slot` and `get_slot_names` are public, and checkpoints are made by what they return, but
there is no public way to make a slot that they know.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf


class OptimizerWithSlots(tf.train.Optimizer):
    """An update rule of our own."""

    def zeros_slots(self, variables: Sequence[Any], slot_name: str) -> list[Any]:
        """Makes a slot, zero at first, for each variable, or returns what was made before.

        Args:
          variables: the weights.
          slot_name: tells the rule's slots apart; the checkpoint has the rule's name.
        """
        return [self._zeros_slot(one, slot_name, self.get_name()) for one in variables]
