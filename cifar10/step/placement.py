"""Where variables live: spread over devices so that each holds about as many bytes."""

import threading
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

_VARIABLE_OPS = ("VarHandleOp", "VariableV2", "Variable")


class VariablePlacer:
    """A device function that puts each new variable where the fewest bytes are.

    Every other op goes to `default`, or to wherever an inner `tf.device` says.

    Args:
      devices: where variables may live.
      default: device of all other ops.
    """

    def __init__(self, devices: Sequence[str], default: str) -> None:
        if not devices:
            raise ValueError("VariablePlacer needs at least one device")
        self._bytes = dict.fromkeys(devices, 0)
        self._default = default
        self._lock = threading.Lock()

    @property
    def bytes_by_device(self) -> dict[str, int]:
        """Bytes of variables placed on each device so far."""
        return dict(self._bytes)

    def __call__(self, op: Any) -> str:
        """Returns the device of `op`; counts its bytes if it is a variable."""
        if op.type not in _VARIABLE_OPS:
            return self._default
        shape = tf.TensorShape(op.get_attr("shape"))
        size = (shape.num_elements() or 0) * op.get_attr("dtype").size
        with self._lock:
            device = min(self._bytes, key=lambda name: self._bytes[name])
            self._bytes[device] += size
        return device
