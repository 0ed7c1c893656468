"""Whether TensorFlow's ops on CPUs are oneDNN's.

Touches: `IsMklEnabled` of `_pywrap_util_port`.

Why: it depends on the build, the CPU and TF_ENABLE_ONEDNN_OPTS, and public API does not tell.
"""

from tensorflow.python.util import _pywrap_util_port


def is_on() -> bool:
    """Returns whether they are."""
    return bool(_pywrap_util_port.IsMklEnabled())
