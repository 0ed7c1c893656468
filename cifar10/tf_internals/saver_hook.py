"""A hook that saves checkpoints in one folder and logs that in another.

Touches: `_checkpoint_dir` of `tf.train.CheckpointSaverHook`.

Why: the hook's `begin` opens an event file in that folder; it writes the graph and a mark for each
checkpoint to it. The public constructor has one folder for both. A hook of our own would not do:
Estimator adds its listeners, which start validation, to a CheckpointSaverHook only.
"""

from collections.abc import Sequence
from typing import Optional

import tensorflow.compat.v1 as tf


class CheckpointSaver(tf.train.CheckpointSaverHook):
    """Saves every `save_steps` steps, without the graph's definition.

    Args:
      folder: for the checkpoints.
      save_steps: between two of them.
      log_folder: for TensorBoard's graph and marks of checkpoints; None: where the checkpoints are.
      listeners: are told of each checkpoint, before those that Estimator adds.
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
        """Opens the event file."""
        self._checkpoint_dir = self.log_folder
        super().begin()
        self._checkpoint_dir = self.folder
