"""The variable that silences TensorFlow's C++ code; that it does so, whole runs show."""

import os

from cifar10.tf_internals import native_log


def test_what_the_user_has_chosen_stays(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    native_log.silence()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"
