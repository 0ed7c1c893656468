"""Settings that change a graph (ops, types, attributes, devices), its session or its length."""

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.host import cpu
from cifar10.input.records import open_records
from cifar10.ops.kernels import library
from cifar10.run.job import make_job, make_trainer
from cifar10.step import devices, model_fn
from tests.cifar10.flag_effects.rows import Row

_BATCH, _CORES, _GPUS = 16, 8, 4
_NORMALISATIONS = ("FusedBatchNormV3", "Cifar10NormRelu")  # types of op


@contextlib.contextmanager
def machine(gpus: int = 0) -> Iterator[None]:
    """Simulates a machine with eight cores that have bfloat16, and with a number of GPUs."""
    names = [f"GPU:{index}" for index in range(gpus)]
    details = {"compute_capability": (9, 0)}
    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (devices, "count_cores", lambda **sharing: _CORES),
            (devices, "cpu_flags", lambda: cpu.cpu_flags() | {"avx512_bf16"}),
            (devices.onednn, "is_on", lambda: True),
            (library, "multiplies_pairs", lambda: True),
            (library, "multiplies_matrices", lambda: False),
            (tf2.config, "list_physical_devices", lambda kind: names),
            (tf2.config.experimental, "get_device_details", lambda gpu: details),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


@functools.cache
def _ops(config: TrainConfig, mode: str, gpus: int) -> list[Any]:
    """Returns the ops of the graph of a mode, built for a machine with so many GPUs."""
    with machine(gpus):
        params = make_job(config, open_records(config.data_place)).params
    images, labels = np.zeros((_BATCH, 32, 32, 3), np.uint8), np.zeros(_BATCH, np.int64)
    with tf.Graph().as_default() as graph:
        tf.train.create_global_step()
        model_fn.model_fn(tf.constant(images), tf.constant(labels), mode, params)
        return list(graph.get_operations())


def _of_type(config: TrainConfig, mode: str, *types: str, gpus: int = 0) -> list[Any]:
    return [op for op in _ops(config, mode, gpus) if op.type in types]


def answering_layers(config: TrainConfig) -> tuple[int, int, bool]:
    """Returns of prediction: convolutions, dense layers, and whether the head normalises."""
    ops = _ops(config, "infer", 0)
    counts = Counter(op.type for op in ops)
    normalises = any(op.name.startswith("model/head/batch_norm/") for op in ops)
    return counts["Conv2D"], counts["MatMul"], normalises


def hidden_layer(config: TrainConfig) -> list[int]:
    """Returns the shape of the first kernel in prediction."""
    (handle,) = (op for op in _ops(config, "infer", 0) if op.name == "model/dense/kernel")
    return list(tf.TensorShape(handle.get_attr("shape")).as_list())


def training_normalisations(config: TrainConfig) -> tuple[int, bool]:
    """Returns of training: fused batch normalisations, and whether there are moving statistics."""
    statistics = any(op.name == "packed/statistics_0" for op in _ops(config, "train", 0))
    return len(_of_type(config, "train", *_NORMALISATIONS)), statistics


def epsilons(config: TrainConfig) -> set[float]:
    """Returns the epsilons of all fused batch normalisations, in training and evaluation."""
    return {
        round(op.get_attr("epsilon"), 9)
        for mode in ("train", "eval")
        for op in _of_type(config, mode, *_NORMALISATIONS)
    }


def layouts(config: TrainConfig) -> set[str]:
    """Returns the layouts of convolutions, fused normalisations and their gradients."""
    return {
        op.get_attr("data_format").decode()
        for mode in ("train", "eval")
        for op in _ops(config, mode, 0)
        if op.type.startswith(("Conv2D", "FusedBatchNorm"))
    }


def own_convolutions(config: TrainConfig) -> int:
    """Returns the number of our own convolution ops in training's forward pass."""
    ops = _of_type(config, "train", "Cifar10Conv3x3")
    return sum(not op.get_attr("transposes") for op in ops)


def kernels_where_ours_are_missing(config: TrainConfig) -> str:
    """Returns whether our kernels are used without a compiler, or the refusal."""
    with machine(), mock.patch.object(devices.library, "why_not", return_value="no compiler"):
        try:
            return f"own: {devices.plan_devices(config).own_kernels}"
        except ConfigError as error:
            return str(error)


def arithmetic(config: TrainConfig) -> set[str]:
    """Returns the types of matrix products on the CPU, in training and prediction."""
    return _arithmetic(config, 0)


def arithmetic_on_a_gpu(config: TrainConfig) -> set[str]:
    """Returns the types of matrix products on a GPU, and `loss scaling` if there is any."""
    scaling = any(op.name == "current_loss_scale" for op in _ops(config, "train", 1))
    return _arithmetic(config, 1) | ({"loss scaling"} if scaling else set())


def _arithmetic(config: TrainConfig, gpus: int) -> set[str]:
    return {
        op.get_attr("T").name
        for mode in ("train", "infer")
        for op in _of_type(config, mode, "MatMul", gpus=gpus)
    }


def towers_on_eight_cores(config: TrainConfig) -> int:
    """Returns the number of towers, the same in training and prediction, on eight cores."""
    return _count_towers(config, 0)


def towers_on_four_gpus(config: TrainConfig) -> tuple[int, int]:
    """Returns the number of towers, and the number of GPUs that have towers."""
    products = _of_type(config, "train", "MatMul", gpus=_GPUS)
    on_gpus = {op.device for op in products if ":GPU:" in op.device}
    return _count_towers(config, _GPUS), len(on_gpus)


def _count_towers(config: TrainConfig, gpus: int) -> int:
    counts = {
        len({op.name.split("/")[0] for op in ops if op.name.startswith("tower_")})
        for ops in (_ops(config, mode, gpus) for mode in ("train", "infer"))
    }
    (count,) = counts
    return count


def homes_of_weights(config: TrainConfig) -> list[str]:
    """Returns the devices of the variables that hold the packed weights, with four GPUs."""
    handles = _of_type(config, "train", "VarHandleOp", gpus=_GPUS)
    devices_ = {op.device for op in handles if op.name.startswith("packed/weights")}
    return sorted(device.rsplit("device:", 1)[-1] for device in devices_)


def all_reductions(config: TrainConfig) -> int:
    """Returns the number of NCCL all-reduce ops in a training step on four GPUs."""
    return len(_of_type(config, "train", "NcclAllReduce", gpus=_GPUS))


def session(config: TrainConfig) -> tuple[int, int, bool]:
    """Returns inter-op threads, intra-op threads and device logging of training on eight cores."""
    with machine():
        found = make_trainer(make_job(config, open_records(config.data_place)))
    chosen = found.config.session_config
    return (
        chosen.inter_op_parallelism_threads,
        chosen.intra_op_parallelism_threads,
        chosen.log_device_placement,
    )


def seed_of_first_weights(config: TrainConfig) -> int:
    """Returns the seed that Estimator gives the training graph."""
    job = make_job(config, open_records(config.data_place))
    return int(make_trainer(job).config.tf_random_seed)


def total_steps(config: TrainConfig) -> int:
    """Returns the global step at which training ends."""
    return make_job(config, open_records(config.data_place)).total_steps


def title(config: TrainConfig) -> str:
    """Returns the model's display name."""
    return config.model_title


_MLP = "--model=mlp --train-batch-size=16"
_ONE_TOWER = "--train-batch-size=16 --num-towers=1"
_RESNET = f"--model=resnet --num-layers=8 --kernels=tensorflow {_ONE_TOWER}"

ROWS = [
    Row("recipe", title, {None: "ResNet-44 v1", "fast": "fastnet", "resnet20": "ResNet-20 v1"}),
    Row(
        "model",
        answering_layers,
        {"fastnet": (7, 1, False), "fastnet_large": (10, 1, False), "mlp": (0, 2, False)},
        _ONE_TOWER,
    ),
    Row(
        "model",
        answering_layers,
        {"resnet": (7, 1, False), "resnet_v2": (7, 1, True)},
        f"{_ONE_TOWER} --num-layers=8",
    ),
    Row(
        "num_layers",
        answering_layers,
        {None: (43, 1, False), "8": (7, 1, False)},
        f"{_ONE_TOWER} --model=resnet",
    ),
    Row("hidden_units", hidden_layer, {None: [3072, 100], "7": [3072, 7]}, _MLP),
    Row(
        "batch_norm",
        training_normalisations,
        {None: (7, True), "sync": (0, True), "off": (0, False)},
        _RESNET,
    ),
    Row(
        "batch_norm_epsilon",
        epsilons,
        {None: {1e-5}, "0.001": {0.001}},
        _RESNET,
    ),
    Row(
        "data_format",
        layouts,
        {None: {"NHWC"}, "channels_first": {"NCHW"}},
        _RESNET,
    ),
    Row(
        "kernels",
        own_convolutions,
        {None: 4, "tensorflow": 0},
        f"--model=resnet --num-layers=8 {_ONE_TOWER}",
        fixture="compiled_kernels",
    ),
    Row(
        "kernels",
        kernels_where_ours_are_missing,
        {
            None: "own: False",
            "own": "--kernels own cannot be had: no compiler; --kernels auto does without",
            "pairs": "--kernels pairs cannot be had: it is for --precision bf16, and this is fp32; "
            "--kernels auto does without",
        },
        "--model=resnet",
    ),
    Row("precision", arithmetic, {None: {"float32"}, "bf16": {"bfloat16", "float32"}}, _MLP),
    Row(
        "precision",
        arithmetic_on_a_gpu,
        {
            None: {"float32"},
            "bf16": {"bfloat16", "float32"},  # the logits are float32
            "fp16": {"float16", "float32", "loss scaling"},
        },
        _MLP,
    ),
    Row("num_towers", towers_on_eight_cores, {None: 2, "4": 4}, _MLP),
    Row("num_towers", towers_on_four_gpus, {None: (4, 4), "8": (8, 4)}, _MLP),
    Row("num_gpus", towers_on_four_gpus, {None: (4, 4), "2": (2, 2)}, _MLP),
    Row(
        "variable_strategy",
        homes_of_weights,
        {None: ["CPU:0"], "GPU": ["GPU:0", "GPU:1", "GPU:2", "GPU:3"]},
        _MLP,
    ),
    Row("gradient_reduction", all_reductions, {None: 4, "cpu": 0}, _MLP),
    Row("num_inter_threads", session, {None: (2, 8, False), "5": (5, 8, False)}, _MLP),
    Row("num_intra_threads", session, {None: (2, 8, False), "5": (2, 5, False)}, _MLP),
    Row("log_device_placement", session, {None: (2, 8, False), "true": (2, 8, True)}, _MLP),
    Row("seed", seed_of_first_weights, {None: 1, "2": 2}, _MLP),
    Row("train_steps", total_steps, {None: 80_000, "7": 7}, _MLP),
    # 2.5 epochs of 100 images are 15.6 batches of 16.
    Row("train_epochs", total_steps, {None: 80_000, "2.5": 16}, _MLP),
]
