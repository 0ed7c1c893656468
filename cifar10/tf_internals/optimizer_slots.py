"""Slots: the variables that an optimizer keeps in addition to the weights.

Touches: `_zeros_slot` of `tf.train.Optimizer`, which is for subclasses.

Why: `get_slot` and `get_slot_names` are public, and checkpoints contain the slots that they return,
but there is no public way to create such a slot.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf


class OptimizerWithSlots(tf.train.Optimizer):
    """Base class of optimizers that create slots."""

    def zeros_slots(self, variables: Sequence[Any], slot_name: str) -> list[Any]:
        """Returns a slot for each variable; one that does not exist yet is created with zeros.

        Args:
          variables: the weights.
          slot_name: name of the slots within this optimizer; in the checkpoint, they have the
            optimizer's name.
        """
        return [self._zeros_slot(one, slot_name, self.get_name()) for one in variables]
