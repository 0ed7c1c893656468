"""The log that TensorFlow's C++ code writes to standard error. Standard library only.

Touches: the environment variable TF_CPP_MIN_LOG_LEVEL.

Why: `tf.logging.set_verbosity` applies to the messages of Python code. The C++ code writes its own
as soon as TensorFlow loads, and only this variable controls them; the API reference does not
mention it.
"""

import os


def silence() -> None:
    """Limits the log to fatal errors, unless the user has set the variable.

    Call this before TensorFlow loads.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
