"""TensorFlow still heeds the variables that silence it and that turn oneDNN on."""

import os
import platform

import pytest

from cifar10.tf_internals import native_log, onednn


def test_what_the_user_has_chosen_stays(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    native_log.silence()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs x86-64")
def test_tensorflow_uses_onednn_unless_the_variable_forbids_it():
    # `make test-cpus` runs this with both values.
    assert onednn.is_on() == (os.environ["TF_ENABLE_ONEDNN_OPTS"] == "1")
