"""What a checkpoint contains, and the hook that saves it.

Touches: `SaveableObject` and `SaveSpec` of `tensorflow.python.training.saving.saveable_object`;
`_checkpoint_dir` of `tf.train.CheckpointSaverHook`.

Why: the documentation of `tf.train.Saver` says that it accepts such objects, but their classes have
no public names. With variables alone, a checkpoint would hold the flat vector in which training
keeps the weights, not the variables of the layers.

The hook's `begin` opens an event file in `_checkpoint_dir` and writes the graph and a mark for each
checkpoint to it. The public constructor takes one folder for both. A separate hook is no
alternative: Estimator adds its listeners, which start validation, to a CheckpointSaverHook only.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

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


class CheckpointSaver(tf.train.CheckpointSaverHook):
    """Saves a checkpoint every `save_steps` steps, without the graph's definition.

    Args:
      folder: path of the checkpoints' folder.
      save_steps: number of steps between two checkpoints.
      log_folder: path of the folder for TensorBoard's graph and marks of checkpoints; None:
        `folder`.
      listeners: listeners called at each checkpoint, before those that Estimator adds.
    """

    def __init__(
        self,
        folder: str,
        save_steps: int,
        log_folder: Optional[str],
        listeners: Sequence[tf.train.CheckpointSaverListener],
    ) -> None:
        super().__init__(
            folder, save_steps=save_steps, listeners=list(listeners), save_graph_def=False
        )
        self.folder, self.log_folder = folder, log_folder or folder

    def begin(self) -> None:
        """Opens the event file in `log_folder`."""
        self._checkpoint_dir = self.log_folder
        super().begin()
        self._checkpoint_dir = self.folder
