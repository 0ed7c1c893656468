"""Chooses a run's devices, data layout, precision and session settings."""

import dataclasses
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10 import kernels, models
from cifar10.config.fields import MODES_WITH_KERNELS
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.host.cpu import count_cores, cpu_flags, cpu_name
from cifar10.ops.operations import CUSTOM_OPS, CUSTOM_OPS_BF16_DOTS, TENSORFLOW
from cifar10_program.streams import log_error

# A launcher sets this variable to say whether a task has the cores of its CPU affinity to itself.
OWN_CORES = "CIFAR10_OWN_CORES"
# A tower with fewer images than this spends its time on the overhead of ops.
_MIN_IMAGES_A_TOWER = 8
# Either exists where the driver of an NVIDIA GPU is loaded, the second also in containers.
_NVIDIA = ("/dev/nvidia0", "/proc/driver/nvidia")
# The sizes of this process's thread pools, which a later run in it keeps, as in a notebook.
_pools: dict[str, int] = {}
_DTYPES = {"fp32": tf.float32, "bf16": tf.bfloat16, "fp16": tf.float16}


class ThreadSetting(NamedTuple):
    """Numbers of towers and threads, named as in `TrainConfig`.

    With 0 threads, TensorFlow chooses their number.
    """

    num_towers: int
    num_inter_threads: int
    num_intra_threads: int


@dataclasses.dataclass(frozen=True)
class DevicePlan:
    """The devices of a run, and how it uses them; `plan_devices` makes it.

    Attributes:
      tower_devices: the device of each tower.
      variable_devices: the devices that the variables are spread over.
      data_format: `channels_last` or `channels_first`.
      compute_dtype: the type of activations; variables stay float32.
      reduction: how the towers' gradients are summed, `cpu` or `nccl`.
      kernels: what computes convolutions and activations in training, a name of
        `cifar10.ops.operations`; evaluation uses no bf16 dot products.
      kernels_missing: why this CPU cannot use `cifar10.kernels`, although they would suit the
        model and no flag asks for TensorFlow's; None if they are used or do not suit it.
      session_config: the session's threads, GPU memory and placement.
      summary: one line for people.
      gpus: the GPUs that TensorFlow may use, from `tf.config.list_physical_devices`.
    """

    tower_devices: tuple[str, ...]
    variable_devices: tuple[str, ...]
    data_format: str
    compute_dtype: tf.DType
    session_config: tf.ConfigProto
    summary: str
    reduction: str = "cpu"
    kernels: str = TENSORFLOW
    kernels_missing: Optional[str] = None
    gpus: tuple[tf2.config.PhysicalDevice, ...] = ()

    @property
    def num_towers(self) -> int:
        """The number of towers that share a batch."""
        return len(self.tower_devices)


def plan_devices(config: TrainConfig, host_share: tuple[int, int] = (0, 1)) -> DevicePlan:
    """Chooses devices for `config` on this machine; `use_devices` applies the choice.

    Args:
      config: the settings.
      host_share: (index, count): the index of this trainer among the trainers of this machine, and
        their number. They divide the machine's cores and GPUs among themselves, except those that
        a trainer has to itself: cores by its CPU affinity (`cifar10.host.cpu.count_cores`), GPUs
        by CUDA_VISIBLE_DEVICES.

    Raises:
      ConfigError: the settings ask for GPUs, a precision, kernels or a reduction that this machine
        does not have; the number of towers does not fit the batch or the GPUs; or
        CIFAR10_OWN_CORES is neither 0 nor 1.
    """
    visible = _choose_gpus(config, host_share)
    gpus = len(visible)
    cores = count_cores(trainers=host_share[1], own_affinity=_own_affinity())
    if gpus:
        towers = config.num_towers or gpus
        if towers % gpus:
            raise ConfigError(
                f"--num-towers must be a multiple of the GPUs, got {towers} towers on {gpus} "
                "GPUs; --num-gpus says how many to use"
            )
        inter, intra = config.num_inter_threads or 0, config.num_intra_threads or 0
        setting = ThreadSetting(towers, inter, intra)
        tower_devices = tuple(f"/gpu:{index % gpus}" for index in range(towers))
    else:
        setting = rule(config, cores)
        tower_devices = ("/cpu:0",) * setting.num_towers
    kept = {name: size for name, size in _pools.items() if getattr(config, name) is None}
    setting = setting._replace(**kept)
    config.check_towers(setting.num_towers)
    if config.variable_strategy == "GPU" and not gpus:
        raise ConfigError("--variable-strategy GPU needs GPUs, and TensorFlow sees none here")
    _check_precision(config.precision, gpus)
    if config.gradient_reduction == "nccl" and gpus < 2:
        raise ConfigError(
            f"--gradient-reduction nccl sums over several GPUs, and this run uses {gpus}; leave it "
            "out"
        )
    # NCCL exists for Linux only.
    fastest_sum = "nccl" if gpus > 1 and sys.platform == "linux" else "cpu"
    on_gpus = config.variable_strategy == "GPU"
    if config.data_format == "channels_first" and not gpus:
        raise ConfigError(
            "--data-format channels_first is for GPUs, and this run uses none; leave it out"
        )
    # Tensor cores are fastest with channels last. cuDNN's float32 convolutions, and the backward
    # ones of TF32, are fastest with channels first. TensorFlow's layout optimizer follows the same
    # rule, so it has nothing to convert.
    fastest = "channels_first" if gpus and config.precision == "fp32" else "channels_last"
    kernels, kernels_missing = _choose_kernels(config, gpus)
    device = f"{gpus} GPU{'s' * (gpus != 1)}" if gpus else f"{cores} CPU core{'s' * (cores != 1)}"
    count = f"{setting.num_towers} tower{'s' * (setting.num_towers != 1)}"
    return DevicePlan(
        tower_devices=tower_devices,
        variable_devices=tuple(f"/gpu:{i}" for i in range(gpus)) if on_gpus else ("/cpu:0",),
        data_format=config.data_format or fastest,
        compute_dtype=_DTYPES[config.precision],
        session_config=_session_config(config, gpus, setting),
        summary=f"{count} on {device}, {config.precision}",
        reduction=config.gradient_reduction or fastest_sum,
        kernels=kernels,
        kernels_missing=kernels_missing,
        gpus=visible,
    )


def rule(config: TrainConfig, cores: int) -> ThreadSetting:
    """Chooses the towers and threads of a run; numbers that flags give are kept.

    By default there is one tower per core, and each op runs on one thread. Where there are fewer
    towers than cores, an op may use all cores.

    Args:
      config: the run's settings.
      cores: the number of CPU cores that the process may use.
    """
    batch_size = config.train_batch_size
    most = max(1, min(cores, batch_size // _MIN_IMAGES_A_TOWER))
    # The most that divide the batch evenly and get enough images each.
    fitting = (count for count in range(most, 0, -1) if batch_size % count == 0)
    towers = config.num_towers or next(fitting)
    inter, intra = config.num_inter_threads, config.num_intra_threads
    if intra is None:
        intra = 1 if towers >= cores else cores
    return ThreadSetting(towers, towers if inter is None else inter, intra)


def use_devices(session_config: tf.ConfigProto, gpus: Sequence[tf2.config.PhysicalDevice]) -> None:
    """Hides all other GPUs, and starts TensorFlow with this process's thread pools.

    All sessions of a process share one pool for the work inside ops, and its first user sets its
    size, which by default is one thread per core. If that is another session, the towers compete
    for threads (Zen 4, 2 cores: ResNet-44 with batches of 128 takes 8 % longer in fp32 and 18 % in
    bf16, medians of three). So the eager runtime starts here.

    Args:
      session_config: the session configuration of a `DevicePlan`.
      gpus: the GPUs of that `DevicePlan`.

    Raises:
      ConfigError: this process has used TensorFlow before, with other GPUs or other threads.
    """
    intra = session_config.intra_op_parallelism_threads
    inter = session_config.inter_op_parallelism_threads
    try:
        tf2.config.set_visible_devices(list(gpus), "GPU")
        tf2.config.threading.set_intra_op_parallelism_threads(intra)
        tf2.config.threading.set_inter_op_parallelism_threads(inter)
        tf2.config.list_logical_devices()  # Starts the eager runtime.
        _pools.update(num_inter_threads=inter, num_intra_threads=intra)
    except RuntimeError as error:
        raise ConfigError(
            f"this process has used TensorFlow before, not with {inter} inter-op and {intra} "
            f"intra-op threads and {len(gpus)} GPUs; restart it (in a notebook: the kernel), and "
            "begin with this call"
        ) from error


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that training uses."""
    python = platform.python_version()
    return {"python": python, "tensorflow": tf2.__version__, "numpy": np.__version__}


def hardware() -> dict[str, Any]:
    """Describes the machine: CPU, cores this process may use, memory in GiB, visible GPUs."""
    details = map(tf2.config.experimental.get_device_details, tf2.config.get_visible_devices("GPU"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu_name(),
        "cores": count_cores(),
        "memory_gib": round(memory / 2**30, 1),
        "gpus": [detail.get("device_name", "GPU") for detail in details],
    }


def _own_affinity() -> Optional[bool]:
    """Returns whether this process has its cores to itself; None if CIFAR10_OWN_CORES is unset."""
    word = os.environ.get(OWN_CORES, "")
    if word not in ("", "0", "1"):
        raise ConfigError(
            f"{OWN_CORES} must be 1, for cores that this task has alone, or 0, for cores that the "
            f"trainers of this host share, got {word!r}; unset it, and the task looks by itself"
        )
    return bool(int(word)) if word else None


def _choose_gpus(
    config: TrainConfig, host_share: tuple[int, int]
) -> tuple[tf2.config.PhysicalDevice, ...]:
    """Returns the first `--num-gpus` GPUs of this process's share, by default all of them."""
    physical = tf2.config.list_physical_devices("GPU")
    chosen = "CUDA_VISIBLE_DEVICES" in os.environ
    device = next(filter(os.path.exists, _NVIDIA), None)
    if device and not physical and config.num_gpus is None and not chosen:
        log_error(  # TensorFlow's log, which has the reason, is silenced.
            f"this machine has an NVIDIA device ({device}), but TensorFlow sees no GPU, so the CPU "
            "computes; --verbose shows TensorFlow's reason, docs/install.md how to install it with "
            "CUDA, and --num-gpus=0 leaves out this line"
        )
    total, (position, count) = len(physical), host_share
    if not chosen and total >= count:
        physical = physical[total * position // count : total * (position + 1) // count]
    wanted = len(physical) if config.num_gpus is None else config.num_gpus
    if wanted > len(physical):
        raise ConfigError(
            f"--num-gpus must be at most the GPUs that TensorFlow sees, {len(physical)}, "
            f"got {wanted}; --num-gpus=0 trains on the CPU"
        )
    return tuple(physical[:wanted])


def _check_precision(precision: str, gpus: int) -> None:
    reason = None
    if precision == "fp16" and not gpus:
        reason = "needs a GPU; no CPU that TensorFlow 2.15 knows computes in fp16"
    elif precision != "fp32" and gpus:
        needed = (7, 0) if precision == "fp16" else (8, 0)
        device = tf2.config.list_physical_devices("GPU")[0]
        have = tf2.config.experimental.get_device_details(device).get("compute_capability", (0, 0))
        if have < needed:
            numbers = [".".join(map(str, version)) for version in (needed, have)]
            reason = f"needs compute capability {numbers[0]}, this GPU has {numbers[1]}"
    elif precision == "bf16" and not cpu_flags() & {"avx512_bf16", "amx_bf16"}:
        reason = "needs a CPU with avx512_bf16 or amx_bf16, and this one has neither"
    if reason:
        raise ConfigError(f"--precision {precision} {reason}; use --precision fp32")


def _choose_kernels(config: TrainConfig, gpus: int) -> tuple[str, Optional[str]]:
    """Returns the values of `kernels` and `kernels_missing` of a `DevicePlan`."""
    kernels.limit()  # A mistake is one also where they are not asked for.
    if config.kernels == "tensorflow":
        return TENSORFLOW, None
    unfit, reason = None, None
    if config.mode not in MODES_WITH_KERNELS:
        unfit = f"they are for training and evaluation, and this is --mode {config.mode}"
    elif gpus:
        unfit = "they are for CPUs"
    elif not models.find(config.model).convolves:
        unfit = f"{config.model_title} has no convolution that they compute"
    elif config.replication == "in-graph":
        reason = "an in-graph chief does not know what is compiled on other machines"
    else:
        reason = kernels.why_not(cpu_flags())
    if config.kernels == "own":
        if unfit or reason:
            raise ConfigError(
                f"--kernels own is not available: {unfit or reason}; --kernels auto does without"
            )
        return CUSTOM_OPS, None
    if unfit or reason:
        return TENSORFLOW, None if unfit else reason
    # No evaluation uses bf16 dot products, and matrices (AMX) round less.
    trains_in_bf16 = config.mode == "train_and_evaluate" and config.precision == "bf16"
    uses_dots = trains_in_bf16 and kernels.instructions() == kernels.BF16_DOTS
    return CUSTOM_OPS_BF16_DOTS if uses_dots else CUSTOM_OPS, None


def _session_config(config: TrainConfig, gpus: int, setting: ThreadSetting) -> tf.ConfigProto:
    return tf.ConfigProto(
        allow_soft_placement=True,
        log_device_placement=config.log_device_placement,
        intra_op_parallelism_threads=setting.num_intra_threads,
        inter_op_parallelism_threads=setting.num_inter_threads,
        # A session with its own configuration does not know which GPUs are hidden.
        device_count={"GPU": gpus},
        gpu_options=tf.GPUOptions(allow_growth=True),
    )
