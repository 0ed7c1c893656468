"""What is put on a GPU can run there: each op has a kernel for its types in this TensorFlow.

The `tensorflow` package holds the kernels for GPUs, and says which, also where there is no GPU.
Without a kernel, soft placement would move an op to the CPU, and its tensors to and fro.
"""

import dataclasses
import functools
from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.step.devices import DevicePlan
from tests.cifar10 import steps
from tests.cifar10.steps import make_plan
from tests.cifar10.tf_internals.private import registered_kernels

BATCH = 64


@functools.cache
def gpu_kernels(op_type: str) -> list[Any]:
    return [kind for kind in registered_kernels(op_type) if kind.device_type in ("GPU", "DEFAULT")]


def kernels_of(op: Any) -> list[Any]:
    """The kernels that a GPU has for an op with these types."""
    return [held for held in gpu_kernels(op.type) if all(_fits(op, c) for c in held.constraint)]


def _fits(op: Any, constraint: Any) -> bool:
    value = op.get_attr(constraint.name)
    values = value if isinstance(value, list) else [value]
    return all(value in constraint.allowed_values.list.type for value in values)


def in_host_memory(op: Any) -> list[str]:
    """What the kernel of an op takes or gives in the host's memory."""
    return list(kernels_of(op)[0].host_memory_arg)


needs_gpu_kernels = pytest.mark.skipif(
    not gpu_kernels("NcclAllReduce"), reason="this TensorFlow has no kernels for GPUs"
)


def gpu_plan(precision: str, strategy: str) -> DevicePlan:
    gpus = ("/gpu:0", "/gpu:1")
    types = {"fp32": tf.float32, "fp16": tf.float16, "bf16": tf.bfloat16}
    return dataclasses.replace(
        make_plan(1),
        tower_devices=gpus,
        variable_devices=gpus if strategy == "GPU" else ("/cpu:0",),
        data_format="channels_first" if precision == "fp32" else "channels_last",
        compute_dtype=types[precision],
        reduction="nccl",
    )


@pytest.fixture(
    scope="module", params=[("fp32", "CPU", "momentum"), ("fp16", "GPU", "nesterov")], ids=" ".join
)
def ops(request: pytest.FixtureRequest) -> list[Any]:
    """The ops of a training step on two GPUs."""
    precision, strategy, optimizer = request.param
    settings = {"precision": precision, "optimizer": optimizer, "warmup_epochs": 1.0}
    config = TrainConfig(train_batch_size=BATCH, num_layers=8, **settings)
    with tf.Graph().as_default():
        return steps.ops_before(steps.build(config, gpu_plan(precision, strategy))[0].train_op)


def size(tensor: Any) -> int:
    return tensor.shape.num_elements() or 0


@needs_gpu_kernels
def test_every_op_of_a_step_on_gpus_has_a_kernel_there(ops):
    on_gpus = [op for op in ops if "GPU" in op.device]
    assert {"NcclAllReduce", "Conv2D"} <= {op.type for op in on_gpus}
    assert sorted({op.type for op in on_gpus if not kernels_of(op)}) == []
    # int32 is computed in the host's memory: fine for a shape, not for what is large.
    large = {
        f"{op.type} {tensor.dtype.name}"
        for op in on_gpus
        for tensor, output in zip(op.outputs, op.op_def.output_arg)
        if size(tensor) > BATCH and output.name in in_host_memory(op)
    }
    assert large == set()


def test_nothing_large_is_left_for_tensorflow_to_place(ops):
    # It would go to the first GPU, whichever tower's it is.
    assert {
        op.type for op in ops if not op.device and max(map(size, op.outputs), default=0) > 640
    } == set()
