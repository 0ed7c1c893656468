"""The log of TensorFlow's C++ code is silenced, unless the user wants it."""

import os

from cifar10.tf_internals import silence_native_log


def test_what_the_user_has_chosen_stays(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    silence_native_log()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"
