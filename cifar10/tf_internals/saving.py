"""What a checkpoint contains.

Touches: `SaveableObject` and `SaveSpec` of `tensorflow.python.training.saving.saveable_object`.

Why: the documentation of `tf.train.Saver` says that it accepts such objects, but their classes have
no public names. With variables alone, a checkpoint would hold the flat vector in which training
keeps the weights, not the variables of the layers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf
from tensorflow.python.training.saving.saveable_object import SaveableObject, SaveSpec


class NamedTensors(SaveableObject):
    """Saves tensors under given names and restores all of them in one op.

    Args:
      variable: a variable from which the tensors are computed; each entry needs a different one.
      values: tensors to save, by name in the checkpoint.
      name: unique name of this entry.
      assign: function from the restored tensors, in the order of `values`, to the op that assigns
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
        """Returns the op that assigns the restored tensors; `tf.train.Saver` calls this method."""
        return self._assign(restored_tensors)
