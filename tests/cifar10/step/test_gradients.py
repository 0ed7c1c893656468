"""Means over towers: the same on the CPU and by NCCL, whose graph is complete wherever it runs.

TensorFlow has NCCL's kernels for GPUs alone. So here its graph is looked at, and what is around its
ops runs on logical CPU devices, with a sum in their place.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.step import gradients
from cifar10.step.devices import DevicePlan
from tests.cifar10 import steps
from tests.cifar10.steps import BATCH, TWO_MACHINES, make_plan


def all_reduce_without_nccl(values: Sequence[Any]) -> list[Any]:
    """What NCCL does, for any device."""
    reduced = []
    for value in values:
        with tf.device(value.device):
            reduced.append(tf.add_n(values))
    return reduced


@pytest.fixture
def _no_nccl(monkeypatch):
    monkeypatch.setattr(gradients, "all_reduce", all_reduce_without_nccl)


def values_of(*numbers: float) -> list[Any]:
    return [tf.constant([number, 10.0 * number]) for number in numbers]


def all_reduces(ops: Sequence[Any]) -> list[Any]:
    return [op for op in ops if op.type == "NcclAllReduce"]


def test_on_cpus_a_machine_has_one_sum_and_a_single_value_stays_where_it_is():
    with tf.Graph().as_default():
        machines = gradients.mean_by_machine(values_of(3.0, 6.0, 9.0), TWO_MACHINES)
        assert [list(held) for held in machines] == [
            ["/job:worker/task:0/device:CPU:0"],
            ["/job:worker/task:1/device:GPU:0"],
        ]


def test_an_all_reduce_is_an_op_a_gpu_under_one_name():
    with tf.Graph().as_default() as graph:
        devices = ["/gpu:0", "/gpu:1", "/gpu:2"]
        (held,) = gradients.mean_by_machine(values_of(1.0, 2.0, 3.0), devices, "nccl")
        ops = all_reduces(graph.get_operations())
    assert list(held) == ["/device:GPU:0", "/device:GPU:1", "/device:GPU:2"]
    assert [op.device for op in ops] == list(held)
    assert [mean.device for mean in held.values()] == list(held)
    for op in ops:
        assert (op.get_attr("num_devices"), op.get_attr("reduction")) == (3, b"sum")
        assert op.inputs[0].device == op.device
        assert (op.inputs[0].shape, op.inputs[0].dtype) == ([2], tf.float32)
    assert len({op.get_attr("shared_name") for op in ops}) == 1


def test_towers_of_one_gpu_are_summed_there_first():
    with tf.Graph().as_default() as graph:
        devices = ["/gpu:0", "/gpu:1", "/gpu:0", "/gpu:1"]
        gradients.mean_by_machine(values_of(1.0, 2.0, 3.0, 4.0), devices, "nccl")
        ops = all_reduces(graph.get_operations())
    sums = [op.inputs[0].op for op in ops]
    assert [(op.type, op.device, len(op.inputs)) for op in sums] == [
        ("AddN", "/device:GPU:0", 2),
        ("AddN", "/device:GPU:1", 2),
    ]
    assert [op.get_attr("num_devices") for op in ops] == [2, 2]


@pytest.mark.parametrize("position", [0, 1])
def test_whoever_needs_one_gpus_sum_makes_all_gpus_take_part(position):
    # NCCL would wait for ever for a GPU whose op was pruned.
    with tf.Graph().as_default():
        (held,) = gradients.mean_by_machine(values_of(1.0, 2.0), ["/gpu:0", "/gpu:1"], "nccl")
        before = steps.ops_before(list(held.values())[position].op)
    assert len(all_reduces(before)) == 2


def test_gpus_of_different_machines_are_not_reduced_together():
    with tf.Graph().as_default() as graph:
        machines = gradients.mean_by_machine(values_of(3.0, 6.0, 9.0), TWO_MACHINES, "nccl")
        ops = all_reduces(graph.get_operations())
    assert [len(held) for held in machines] == [2, 1]
    assert [op.device for op in ops] == [
        "/job:worker/task:0/device:GPU:0",
        "/job:worker/task:0/device:GPU:1",
    ]
    assert [op.get_attr("num_devices") for op in ops] == [2, 2]


@pytest.mark.usefixtures("_no_nccl")
@pytest.mark.parametrize(
    "devices", [["/cpu:0", "/cpu:1", "/cpu:2"], ["/cpu:0", "/cpu:1", "/cpu:0"]]
)
def test_every_device_gets_the_same_mean(devices):
    config = tf.ConfigProto(device_count={"CPU": 3})
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        (held,) = gradients.mean_by_machine(values_of(3.0, 6.0, 9.0), devices, "nccl")
        assert len(held) == len(set(devices))
        for mean in session.run(list(held.values())):
            np.testing.assert_allclose(mean, [6.0, 60.0], rtol=1e-6)


def gpu_plan(num_gpus: int, variables: Sequence[str]) -> DevicePlan:
    """A plan that can be built, but not run, without GPUs."""
    towers = tuple(f"/gpu:{index}" for index in range(num_gpus))
    plan = dataclasses.replace(make_plan(1), tower_devices=towers, reduction="nccl")
    return dataclasses.replace(plan, variable_devices=tuple(variables))


def built(plan: DevicePlan, **settings: Any) -> Any:
    """The TRAIN spec of a small network, in the default graph."""
    config = TrainConfig(train_batch_size=BATCH, **settings)
    return steps.build(config, plan)[0]


def updates(train_op: Any) -> dict[str, Any]:
    """The gradient that each shard of the weights is updated with."""
    return {
        op.inputs[0].op.name: op.inputs[3]
        for op in steps.ops_before(train_op)
        if op.type == "ResourceApplyMomentum"
    }


def test_a_step_reduces_gradients_and_statistics_on_all_gpus():
    with tf.Graph().as_default():
        train_op = built(gpu_plan(2, ["/cpu:0"]), num_layers=8).train_op
        ops = all_reduces(steps.ops_before(train_op))
        ((_, gradient),) = updates(train_op).items()
    # ResNet-8: 75,290 weights; 240 channels with a mean and a mean square.
    by_shape = sorted((op.inputs[0].shape.as_list(), op.device) for op in ops)
    assert by_shape == [
        ([480], "/device:GPU:0"),
        ([480], "/device:GPU:1"),
        ([75_290], "/device:GPU:0"),
        ([75_290], "/device:GPU:1"),
    ]
    assert gradient.device == "/device:GPU:0"  # from where it is applied on the CPU, once


def _reads(join: Any) -> int:
    """How many shards of the weights an op takes as they are read."""
    before = [op for part in join.inputs for op in (part.op, *(x.op for x in part.op.inputs))]
    return [op.type for op in before].count("ReadVariableOp")


def test_weights_on_gpus_go_to_each_gpu_without_the_cpu():
    with tf.Graph().as_default():
        plan = gpu_plan(2, ["/gpu:0", "/gpu:1"])
        ops = steps.ops_before(built(plan, model="mlp").train_op)
    joins = [op for op in ops if op.type == "ConcatV2" and _reads(op) == 2]
    assert sorted(op.device for op in joins) == ["/device:GPU:0", "/device:GPU:1"]
