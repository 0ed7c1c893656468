"""A fixture with a TensorFlow server, for tests of several replicas."""

import pytest


@pytest.fixture
def target() -> str:
    """The target of a new server for each test, since variables on a server outlive sessions."""
    import tensorflow.compat.v1 as tf  # Here, since some tests of this folder need no TensorFlow.

    return str(tf.train.Server.create_local_server().target)
