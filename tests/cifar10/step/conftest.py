"""A TensorFlow server for tests of several replicas."""

import pytest


@pytest.fixture
def target() -> str:
    """A server of the test's own, since variables on a server outlive sessions."""
    import tensorflow.compat.v1 as tf  # Here, since tests without TensorFlow are in this folder.

    return str(tf.train.Server.create_local_server().target)
