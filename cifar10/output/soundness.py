"""Whether a checkpoint can be read, tensor by tensor, and holds finite numbers."""

from typing import Optional

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.host import files


def fault_of(checkpoint: str) -> Optional[str]:
    """Returns what is wrong with a checkpoint; None if nothing is.

    TensorFlow verifies the checksum (CRC-32C) of each tensor that it reads, so this reads them all.

    Args:
      checkpoint: the checkpoint's prefix, the path without the endings of its files.

    Raises:
      UnreadableError: a file of the checkpoint cannot be read.
    """
    for ending, name in ((".index", "index"), (".data-*", "data")):
        if not tf.io.gfile.glob(checkpoint + ending):
            return f"its {name} file is gone"
        files.require_readable(checkpoint + ending)
    try:
        reader = tf.train.NewCheckpointReader(checkpoint)
        for name in reader.get_variable_to_shape_map():
            value = np.asarray(reader.get_tensor(name))  # A text alone is bytes, not an array.
            # bfloat16 and the like are of kind V; NumPy converts them.
            if value.dtype.kind in "fV" and not np.isfinite(value.astype(np.float64)).all():
                return f"{name} is NaN or infinite"
    except (tf.errors.OpError, ValueError, IndexError, RuntimeError) as error:
        return str(error).splitlines()[0]
    return None
