"""A hook that saves checkpoints in one folder and writes its events in another.

Touches: `_checkpoint_dir` of `tf.train.CheckpointSaverHook`.

Why: the hook's `begin` opens an event file in that folder and writes the graph and a mark for each
checkpoint to it. The public constructor takes one folder for both. A separate hook is no
alternative: Estimator adds its listeners, which start validation, to a CheckpointSaverHook only.
"""

from collections.abc import Sequence
from typing import Optional

import tensorflow.compat.v1 as tf


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
