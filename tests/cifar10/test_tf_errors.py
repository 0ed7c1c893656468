"""TensorFlow's errors about data, checkpoints and memory become one clear line each."""

import os
import pathlib
import threading
from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10 import tf_errors
from cifar10.config.train_config import TrainConfig
from cifar10.errors import TrainingError, UserError
from cifar10.host.files import write_text
from cifar10.tf_errors import clear_errors
from tests.cifar10.saved import save

CONFIG = TrainConfig(output_dir="runs/1")


def restore(checkpoint: str, *others: str) -> None:
    """Restores the kernel and variables of other names as Estimator does."""
    with tf.Graph().as_default():
        tf.train.create_global_step()
        for name in ("model/kernel", *others):
            tf.get_variable(name, [2, 3], use_resource=True)
        creator = tf.train.ChiefSessionCreator(checkpoint_filename_with_path=checkpoint)
        with tf.train.MonitoredSession(creator) as session:
            session.run(tf.train.get_global_step())


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save(tmp_path_factory.mktemp("run"), 5)


def message_of(kind: type[Exception], action: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(kind) as raised, clear_errors(CONFIG):
        action(*arguments, **options)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_a_checkpoint_of_another_model_is_the_users_mistake(saved):
    assert message_of(UserError, restore, saved, "other") == (
        "the checkpoint in runs/1 cannot be restored (Key other not found in checkpoint); give the "
        "flags that it was trained with, name another one by --checkpoint, or train anew with "
        "another --output-dir"
    )


@pytest.mark.parametrize("size", [5, None], ids=["cut", "changed"])
def test_a_damaged_checkpoint_is_not_blamed_on_the_records(saved, tmp_path, size):
    for path in pathlib.Path(saved).parent.glob("model.ckpt-5.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    data = tmp_path / "model.ckpt-5.data-00000-of-00001"
    content = data.read_bytes()
    data.write_bytes(bytes(len(content)) if size is None else content[:size])
    message = message_of(UserError, restore, f"{tmp_path}/model.ckpt-5")
    assert message.startswith("the checkpoint in runs/1 cannot be restored (it is damaged); give ")


def fail(error: Exception) -> None:
    raise error


def test_too_little_memory_is_named_with_a_way_out():
    # As a session words it. The real error takes TensorFlow ten seconds of trying again.
    text = (
        "Graph execution error:\n\nDetected at node 'Fill' defined at (most recent call last):\n"
        "Node: 'Fill'\nOOM when allocating tensor with shape[8796093022208] and type float\n"
        "\t [[{{node Fill}}]]\nHint: If you want to see a list of allocated tensors"
    )
    message = message_of(UserError, fail, tf.errors.ResourceExhaustedError(None, None, text))
    assert message == (
        "out of memory: OOM when allocating tensor with shape[8796093022208] and type "
        "float; free some, or use a smaller --train-batch-size"
    )


READ_ONLY = "output/run.json.part; Read-only file system"
FULL = "logs/metrics.jsonl; No space left on device"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (tf.errors.PermissionDeniedError(None, None, READ_ONLY), READ_ONLY),
        (tf.errors.ResourceExhaustedError(None, None, FULL), FULL),
        (OSError(122, "Disk quota exceeded"), "[Errno 122] Disk quota exceeded"),
        (RuntimeError(f"{FULL}\n\tFailed to flush 3 events"), FULL),  # of an event file
    ],
)
def test_a_disk_that_takes_no_more_is_named_with_a_way_out(error, reason):
    assert message_of(UserError, fail, error) == (
        f"cannot write: {reason}; free or repair the disk, then run the same command to continue"
    )


def test_a_folder_in_the_place_of_a_file_is_named_with_a_way_out(tmp_path):
    line = f"{tmp_path} is a folder; move it away, then run the same command to continue"
    assert message_of(UserError, write_text, str(tmp_path), "") == line
    assert message_of(UserError, os.open, str(tmp_path), os.O_RDWR) == line


@pytest.mark.parametrize(("words", "is_shown"), [("No space left on device", False), ("odd", True)])
def test_the_thread_of_an_event_file_leaves_a_full_disk_to_the_next_flush(
    monkeypatch, words, is_shown
):
    shown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", None)
    monkeypatch.setattr(tf_errors, "_SHOW", shown.append)
    with clear_errors(CONFIG):
        thread = threading.Thread(target=fail, args=[RuntimeError(f"events.out; {words}")])
        thread.start()
        thread.join()
    assert bool(shown) == is_shown


DENIED = "/usr/model.ckpt-5; Permission denied"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (tf.errors.PermissionDeniedError(None, None, DENIED), DENIED),
        (PermissionError(13, "Not yours", "/usr/a"), "[Errno 13] Not yours: '/usr/a'"),
    ],
)
def test_a_file_that_may_not_be_written_is_named_with_the_owner_of_its_folder(error, reason):
    message = message_of(UserError, fail, error)
    assert message.startswith(f"no access: {reason}; /usr belongs to user 0, and ")
    assert message.endswith(
        "; let this user read and write there, then run the same command to continue"
    )


def test_a_master_that_begins_no_session_is_named_with_a_way_out():
    error = tf.errors.DeadlineExceededError(
        None, None, "Session was not ready after waiting 4 secs."
    )
    assert message_of(TrainingError, fail, error) == (
        "the chief answers, but it has begun no session for a minute and for "
        "--cluster-timeout 300; see what it says, or raise that"
    )


@pytest.mark.parametrize(
    "error", [tf.errors.InvalidArgumentError(None, None, "shapes differ"), OSError(2, "gone")]
)
def test_an_error_that_is_not_the_users_stays_what_it_is(error):
    with pytest.raises(type(error)) as raised, clear_errors(CONFIG):
        raise error
    assert raised.value is error
