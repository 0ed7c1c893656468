"""A disk may fail wherever a file is written, and not only within a session."""

from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10 import main, train
from cifar10.config.train_config import TrainConfig
from cifar10.errors import UserError
from cifar10.host.process import StopRequest


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        tf.errors.PermissionDeniedError(None, None, "output/run.json.part; Read-only file system"),
    ],
)
def test_a_write_that_fails_outside_of_a_session_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(train, "train_and_evaluate", fail)
    with pytest.raises(UserError, match="^cannot write: .*; free or repair the disk"):
        main._run(TrainConfig(), None, StopRequest(), 0.0)
