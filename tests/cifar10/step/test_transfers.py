"""What crosses between a trainer and its parameter servers, as TensorFlow cuts its graphs."""

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.input.records import CIFAR10_STD
from cifar10.step.devices import plan_devices
from cifar10.step.model_fn import model_fn
from cifar10.step.params import ModelParams, Replication
from cifar10.step.training_step import StepTensors
from testbeds.ports import free_ports
from tests.cifar10.steps import ops_before

MASTER = "/job:master/task:0"


def setting(num_ps: int, **settings: Any) -> tuple[str, ModelParams]:
    """Starts servers; returns the master's address, and the parameters of its step."""
    config = TrainConfig(model="resnet", num_layers=8, num_towers=1, train_batch_size=4, **settings)
    ports = iter(free_ports(1 + num_ps))
    jobs = {
        job: [f"127.0.0.1:{next(ports)}" for _ in range(count)]
        for job, count in (("master", 1), ("ps", num_ps))
    }
    target, *_ = [
        tf.distribute.Server(jobs, job, index).target
        for job, tasks in jobs.items()
        for index in range(len(tasks))
    ]
    plan = plan_devices(config)
    replication = Replication(
        tuple(f"/job:ps/task:{index}/device:CPU:0" for index in range(num_ps)),
        tuple(MASTER + device for device in plan.tower_devices),
        MASTER,
        transfer_dtype=tf.bfloat16 if config.ps_transfer == "bf16" else tf.float32,
    )
    return target, ModelParams(config, plan, 45_000, 1_000, replication=replication)


def build(params: ModelParams) -> Any:
    """Builds a step with black images of class 0; returns its op."""
    tf.train.create_global_step()
    with tf.device(MASTER):
        images, labels = tf.zeros([4, 32, 32, 3], tf.uint8), tf.zeros([4], tf.int64)
    return model_fn(images, labels, tf.estimator.ModeKeys.TRAIN, params).train_op


def transfers(num_ps: int, **settings: Any) -> tuple[Counter[str], int]:
    """How often a step crosses each way, and how many bytes all of it is."""
    target, params = setting(num_ps, **settings)
    with tf.Graph().as_default() as graph, tf.Session(target) as session:
        train_op = build(params)
        session.run(tf.global_variables_initializer())
        session.run(tf.local_variables_initializer())
        metadata = tf.RunMetadata()
        options = tf.RunOptions(output_partition_graphs=True)
        # With the report, since hooks fetch it in every step.
        report, *_ = StepTensors.find().report
        session.run([train_op, report], options=options, run_metadata=metadata)
        return sent(metadata.partition_graphs, graph)


def sent(parts: Any, graph: tf.Graph) -> tuple[Counter[str], int]:
    ways: Counter[str] = Counter()
    size = 0
    for node in (node for part in parts for node in part.node if node.op.endswith("Send")):
        source, target = (
            node.attr[name].s.decode().split("/")[1].removeprefix("job:")
            for name in ("send_device", "recv_device")
        )
        if source != target:
            ways[f"{source} to {target}"] += 1
            name, _, output = node.input[0].partition(":")
            tensor = graph.get_tensor_by_name(f"{name}:{output or 0}")
            size += int(np.prod(tensor.shape.as_list())) * tensor.dtype.size
    return ways, size


@pytest.mark.parametrize(
    ("num_ps", "settings", "each_way", "size"),
    [
        # The weights and the gradient, the batch statistics and the step's report.
        (1, {"ps_transfer": "bf16"}, 2, 303_112),
        # A weight's and a gradient's shard more.
        (2, {}, 3, 604_272),
    ],
)
def test_packed_weights_cross_four_times_a_step_however_many_layers_there_are(
    num_ps: int, settings: dict[str, Any], each_way: int, size: int
) -> None:
    ways = {"ps to master": each_way, "master to ps": each_way}
    assert transfers(num_ps, **settings) == (ways, size)


def test_a_trainer_normalizes_by_the_channels_of_its_parameter_server() -> None:
    # This machine has other records than that which initialised the variables.
    target, params = setting(1)
    params = dataclasses.replace(params, channels=((1.0, 2.0, 3.0), CIFAR10_STD))
    with tf.Graph().as_default(), tf.Session(target) as session:
        train_op = build(params)
        mean, own = (
            next(variable for variable in found if variable.op.name.endswith("channel_mean"))
            for found in (tf.global_variables(), tf.local_variables())
        )
        assert ("ps" in mean.device, MASTER in own.device) == (True, True)
        assert mean.op not in ops_before(train_op)
        assert own.op in ops_before(train_op)
        session.run(tf.global_variables_initializer())
        mean.load([10.0, 20.0, 30.0], session)
        session.run(tf.local_variables_initializer())
        session.run(train_op)
        assert session.run(own).tolist() == [10.0, 20.0, 30.0]
