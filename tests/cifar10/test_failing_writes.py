"""A disk may fail wherever a file is written, and not only within a session."""

import importlib
import threading
from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10 import main
from cifar10.config.train_config import TrainConfig
from cifar10.errors import UserError
from cifar10.host.process import StopRequest
from cifar10.run import tf_errors


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        RuntimeError("events.out; No space left on device\n\tFailed to flush 3 events"),
        tf.errors.PermissionDeniedError(None, None, "output/run.json.part; Read-only file system"),
    ],
)
def test_a_write_that_fails_outside_of_a_session_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(importlib.import_module("cifar10.train"), "train_and_evaluate", fail)
    refused = pytest.raises(UserError, match="^cannot write: .*; free or repair the disk")
    with refused, tf_errors.clear_errors(TrainConfig()):
        main._run_role(TrainConfig(), None, StopRequest(), 0.0)


@pytest.mark.parametrize(("words", "is_told"), [("No space left on device", False), ("odd", True)])
def test_the_thread_of_an_event_file_leaves_a_full_disk_to_the_next_flush(
    monkeypatch: pytest.MonkeyPatch, words: str, is_told: bool
) -> None:
    def fail() -> None:
        raise RuntimeError(f"events.out; {words}")

    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", None)
    monkeypatch.setattr(tf_errors, "_SHOW", told.append)
    with tf_errors.clear_errors(TrainConfig()):
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    assert bool(told) == is_told
