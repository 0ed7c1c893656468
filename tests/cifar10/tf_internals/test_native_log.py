"""TensorFlow's C++ code still heeds the variable that silences it."""

import os
import subprocess
import sys

import pytest

from cifar10.tf_internals import native_log

LOAD = "import tensorflow as tf; tf.config.list_physical_devices()"
SILENCE = "from cifar10.tf_internals import native_log; native_log.silence(); "


@pytest.mark.parametrize(("code", "is_heard"), [(LOAD, True), (SILENCE + LOAD, False)])
def test_tensorflow_loads_in_silence_only_where_it_is_asked_to(root, code, is_heard):
    env = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert bool(done.stderr) == is_heard


def test_what_the_user_has_chosen_stays(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    native_log.silence()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"
