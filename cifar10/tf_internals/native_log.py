"""What TensorFlow's C++ code writes to standard error. Standard library only.

Touches: the environment variable TF_CPP_MIN_LOG_LEVEL.

Why: `tf.logging.set_verbosity` is for Python's messages. C++ code writes its own as soon as
TensorFlow loads, and it asks nobody but this variable, of which the API's reference says nothing.
"""

import os


def silence() -> None:
    """Lets only fatal errors through; before TensorFlow loads, and unless the user has chosen."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
