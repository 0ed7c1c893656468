"""TensorFlow's profiler still writes what the table of ops and the trace are made of."""

import gzip
import json
import pathlib

import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.tf_internals import profiler


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> str:
    """The trace of three executions of a product of matrices."""
    folder = tmp_path_factory.mktemp("trace")
    with tf.Graph().as_default(), tf.Session() as session:
        product = tf.matmul(tf.random.uniform([200, 200]), tf.random.uniform([200, 200]))
        session.run(product)
        tf2.profiler.experimental.start(str(folder))
        for _ in range(3):
            session.run(product)
        tf2.profiler.experimental.stop()
    (path,) = folder.glob("plugins/profile/*/*.xplane.pb")
    return str(path)


def test_each_type_of_op_has_its_calls_and_its_time(recorded):
    ops = {op.type: op for op in profiler.op_times(recorded)}
    (product,) = [name for name in ops if name.endswith("MatMul")]  # oneDNN has its own.
    assert ops[product].calls == 3
    assert ops["RandomUniform"].calls == 6
    assert 0 < ops[product].seconds < 60
    seconds = [op.seconds for op in profiler.op_times(recorded)]
    assert seconds == sorted(seconds, reverse=True)


def test_the_trace_is_one_for_the_trace_viewer(recorded):
    path = profiler.write_trace(recorded)
    assert path == recorded.replace(".xplane.pb", ".trace.json.gz")
    events = json.loads(gzip.decompress(pathlib.Path(path).read_bytes()))["traceEvents"]
    named = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert "/host:CPU" in named
    found = [event for event in events if event["name"] == "RandomUniform"]
    assert len(found) == 6
    assert {"ph", "pid", "tid", "ts", "dur", "name"} <= found[0].keys()


def test_time_of_ops_inside_an_op_is_theirs_alone():
    # While: 0-100, with MatMul 10-40, which has Relu 20-30 inside, and Add 50-60; then Add 100-105.
    events = [(0, 100, "While"), (10, 30, "MatMul"), (20, 10, "Relu"), (50, 10, "Add")]
    events.append((100, 5, "Add"))
    assert sorted(profiler.self_times(events)) == [
        ("Add", 5),
        ("Add", 10),
        ("MatMul", 20),
        ("Relu", 10),
        ("While", 60),
    ]
