"""Entries of a checkpoint that are not variables one by one.

Touches: `SaveableObject` and `SaveSpec` of `tensorflow.python.training.saving.saveable_object`.

Why: `tf.train.Saver` takes such objects among its variables, as its documentation says, but the
classes have no public name. With variables alone, a checkpoint would hold the flat vector in which
training keeps the weights instead of the layers' variables.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf
from tensorflow.python.training.saving.saveable_object import SaveableObject, SaveSpec


class NamedTensors(SaveableObject):
    """Saves tensors under names, and restores them all at once.

    Args:
      variable: one that the tensors are made from; no other entry may have it.
      values: what to save, by its name in the checkpoint.
      name: of the entry, unique.
      assign: takes the restored tensors, in the order of `values`; returns the op that assigns
        them.
    """

    def __init__(
        self,
        variable: Any,
        values: Mapping[str, tf.Tensor],
        name: str,
        assign: Callable[[Sequence[tf.Tensor]], Any],
    ) -> None:
        super().__init__(variable, [SaveSpec(one, "", key) for key, one in values.items()], name)
        self._assign = assign

    def restore(self, restored_tensors: Sequence[tf.Tensor], restored_shapes: Any) -> Any:
        """Returns the op that assigns what was read; `tf.train.Saver` calls it."""
        return self._assign(restored_tensors)
