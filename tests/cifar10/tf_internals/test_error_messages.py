"""The real errors still say what is read from them."""

from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10 import tf_internals
from tests.unprivileged import open_folder, unprivileged


def message_of(*fetches: Any, feed: Any = None) -> str:
    with tf.Session() as session, pytest.raises(tf.errors.OpError) as raised:
        session.run(fetches, feed)
    return str(raised.value.message)


def example(**features: Any) -> bytes:
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


NUMBERS = tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2]))
TEXT = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"cat"]))


@pytest.mark.parametrize(
    "record",
    [b"no example", example(), example(label=TEXT), example(label=NUMBERS)],
    ids=["another message", "no feature", "another type", "another number of values"],
)
def test_a_record_that_is_no_example_of_ours_is_told_from_other_errors(record):
    with tf.Graph().as_default():
        feature = tf.io.FixedLenFeature([], tf.int64)
        message = message_of(tf.io.parse_example(tf.constant([record]), {"label": feature}))
    assert tf_internals.NOT_AN_EXAMPLE.search(message)
    assert not tf_internals.FAILED_RESTORE.search(message)


def test_a_chief_that_makes_no_session_ready_is_told_from_other_errors():
    target = tf.train.Server.create_local_server().target
    with tf.Graph().as_default():
        tf.get_variable("nobody_initializes_this", [])
        # It waits less than TensorFlow does before it looks again, and so gives up at once.
        with pytest.raises(tf.errors.DeadlineExceededError) as raised:
            tf.train.MonitoredTrainingSession(target, is_chief=False, max_wait_secs=1)
    assert tf_internals.SESSION_TIMEOUT.search(raised.value.message)
    assert not tf_internals.SESSION_TIMEOUT.search("deadline exceeded")


def failed_check() -> str:
    with tf.Graph().as_default():
        label = tf.placeholder(tf.int32, [])
        rule = "bad record: a label must be in [0, 10)"
        return message_of(tf.debugging.assert_less(label, 10, message=rule), feed={label: 12})


def test_an_assertion_of_ours_is_found_and_said_without_what_tensorflow_adds():
    message = failed_check()
    found = tf_internals.failed_assertion(message, "bad record")
    assert found == "bad record: a label must be in [0, 10)"
    assert tf_internals.failed_assertion(message, "bad manifest") is None


def test_the_reason_is_the_line_after_the_ops_name():
    with tf.Graph().as_default():
        size = tf.placeholder(tf.int32, [])
        message = message_of(tf.reshape(tf.zeros([4]), [size]), feed={size: 3})
    assert "\n" in message
    assert tf_internals.reason(message) == (
        "Input to reshape is a tensor with 4 values, but the requested shape has 3"
    )


def test_the_reason_of_an_op_that_a_server_ran_is_not_the_servers_name():
    server = "From /job:master/replica:0/task:0:"
    cause = "output/model.ckpt-3; Read-only file system"
    for message in (f"{server}\n{cause}", f"Node: 'save/SaveV2'\n{server}\n{cause}\n"):
        assert tf_internals.reason(message) == cause
    assert tf_internals.reason(server) == server


def test_an_error_without_an_op_gives_its_first_line_as_the_reason():
    with pytest.raises(tf.errors.OpError) as raised:
        tf.io.gfile.GFile("/dev/null/model.ckpt", "wb").write(b"")
    assert tf_internals.reason(raised.value.message) == "/dev/null/model.ckpt; Not a directory"


def test_a_file_that_may_not_be_written_is_found() -> None:
    with open_folder() as folder, unprivileged(), pytest.raises(tf.errors.OpError) as raised:
        tf.io.gfile.GFile(f"{folder}/my file", "wb").write(b"")
    message = raised.value.message
    for text in (message, f"Node: 'save'\n{message}", f"Failed to save: {message}"):
        assert tf_internals.forbidden_file(text) == f"{folder}/my file"
    assert tf_internals.forbidden_file("output; No space left on device") is None


def test_a_full_disk_is_told_from_little_memory() -> None:
    with pytest.raises(tf.errors.OpError) as raised, tf.io.gfile.GFile("/dev/full", "wb") as file:
        file.write(b"text")
    assert tf_internals.DISK_FAILURE.search(raised.value.message)
    assert not tf_internals.DISK_FAILURE.search("OOM when allocating tensor")
