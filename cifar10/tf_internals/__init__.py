"""Uses of TensorFlow and Estimator beyond their public API: private names, patches, messages.

Each module states what it touches and why the public API is not enough. All were checked with
TensorFlow 2.15.1; a test in tests/cifar10/tf_internals for each fails if another version differs.
"""

import os


def silence_native_log() -> None:
    """Limits the log of TensorFlow's C++ code to fatal errors, unless the user chose otherwise.

    Call this before TensorFlow loads. `tf.logging.set_verbosity` applies to the messages of Python
    code only; the API reference does not mention the variable that this sets.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
