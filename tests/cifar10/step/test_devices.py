"""What a machine gives a run: cores, towers, threads, GPUs, precisions; and what it refuses."""

import functools
import os
import sys
from typing import Any, Optional

import pytest
import tensorflow as tf2

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.host import cpu
from cifar10.step import devices


class Machine:
    """Stands in for hardware that this computer has not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.visible: Optional[list[str]] = None
        self.has(cores=8)

    def has(
        self, cores: int = 8, gpus: int = 0, capability: Any = (9, 0), flags: str = "avx2"
    ) -> None:
        names = [f"GPU:{index}" for index in range(gpus)]
        config = tf2.config
        self._patch.setattr(devices, "count_cores", lambda **sharing: cores)
        self._patch.setattr(devices, "cpu_flags", lambda: set(flags.split()))
        self._patch.setattr(devices.onednn, "is_on", lambda: True)
        self._patch.setattr(config, "list_physical_devices", lambda kind: names)
        self._patch.setattr(config, "set_visible_devices", self._show)
        self._patch.setattr(
            config.experimental,
            "get_device_details",
            lambda gpu: {"compute_capability": capability},
        )

    def _show(self, names: list[str], kind: str) -> None:
        assert kind == "GPU"
        self.visible = names


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def plan(**settings: Any) -> devices.DevicePlan:
    return devices.plan_devices(TrainConfig(**settings))


@pytest.mark.parametrize(("cores", "batch_size", "towers"), [(8, 128, 8), (8, 40, 5), (2, 15, 1)])
def test_a_cpu_gets_a_tower_a_core_if_that_divides_the_batch(machine, cores, batch_size, towers):
    machine.has(cores=cores)
    chosen = plan(train_batch_size=batch_size)
    assert chosen.num_towers == towers
    assert chosen.tower_devices == ("/cpu:0",) * towers


def test_fewer_towers_share_the_cores(machine):
    machine.has(cores=4)
    session = plan(num_towers=1).session_config
    assert session.inter_op_parallelism_threads == 1
    assert session.intra_op_parallelism_threads == 4


def test_thread_flags_are_honoured(machine):
    # The tutorial ignored --num-inter-threads.
    session = plan(num_inter_threads=7, num_intra_threads=3).session_config
    assert session.inter_op_parallelism_threads == 7
    assert session.intra_op_parallelism_threads == 3


def test_the_session_knows_soft_placement_growth_and_logging(machine):
    session = plan(log_device_placement=True).session_config
    assert session.allow_soft_placement
    assert session.gpu_options.allow_growth
    assert session.log_device_placement
    assert not plan().session_config.log_device_placement


def test_a_cpu_plan_is_fp32_channels_last(machine):
    machine.has(cores=2)
    chosen = plan()
    assert (chosen.data_format, chosen.compute_dtype) == ("channels_last", tf2.float32)
    assert chosen.variable_devices == ("/cpu:0",)
    assert not chosen.loss_scaling
    assert chosen.summary == "2 towers on 2 CPU cores, fp32"
    assert plan(num_towers=1).summary == "1 tower on 2 CPU cores, fp32"


def test_channels_first_on_a_cpu_is_said_to_be_slow_and_needs_onednn(machine, monkeypatch):
    chosen = plan(data_format="channels_first", num_towers=1)
    assert chosen.data_format == "channels_first"
    assert chosen.summary == "1 tower on 8 CPU cores, fp32, channels_first, which is slow on CPUs"
    # Its convolutions are not fused with what follows them, see the comment in `devices`.
    for one, is_off in ((chosen, True), (plan(), False)):
        rewrites = one.session_config.graph_options.rewrite_options
        assert (rewrites.remapping == rewrites.OFF) == is_off
    monkeypatch.setattr(devices.onednn, "is_on", lambda: False)
    with pytest.raises(ConfigError) as refused:
        plan(data_format="channels_first")
    assert str(refused.value) == (
        "--data-format channels_first on a CPU needs TensorFlow's oneDNN, which "
        "TF_ENABLE_ONEDNN_OPTS=1 turns on; channels_last does without"
    )
    assert plan().data_format == "channels_last"
    machine.has(gpus=1)
    assert plan(data_format="channels_first").summary == "1 tower on 1 GPU, fp32"


def test_towers_that_do_not_divide_the_batch_are_refused(machine):
    machine.has(gpus=3)
    with pytest.raises(ConfigError, match="got 128 images for 3 towers"):
        plan()


def test_outside_training_the_training_batch_may_be_any(machine):
    machine.has(gpus=3)
    assert plan(mode="evaluate").num_towers == 3


def test_gpus_that_are_not_there_are_refused(machine):
    with pytest.raises(ConfigError) as refused:
        plan(num_gpus=1)
    assert str(refused.value) == (
        "--num-gpus must be at most the GPUs that TensorFlow sees, 0, got 1; --num-gpus=0 trains "
        "on the CPU"
    )


def test_a_thousand_gpus_are_refused_on_this_computer_too():
    with pytest.raises(ConfigError, match="must be at most the GPUs that TensorFlow sees, "):
        plan(num_gpus=1000)


def test_variables_on_gpus_need_gpus(machine):
    with pytest.raises(ConfigError, match="--variable-strategy GPU needs GPUs, and TensorFlow"):
        plan(variable_strategy="GPU")


def test_all_gpus_are_used_unless_fewer_are_asked_for(machine):
    machine.has(gpus=4)
    chosen = plan()
    assert chosen.tower_devices == ("/gpu:0", "/gpu:1", "/gpu:2", "/gpu:3")
    assert chosen.gpus == ("GPU:0", "GPU:1", "GPU:2", "GPU:3")
    assert chosen.summary == "4 towers on 4 GPUs, fp32"
    assert plan(num_gpus=2).tower_devices == ("/gpu:0", "/gpu:1")
    assert plan(num_gpus=2).gpus == ("GPU:0", "GPU:1")


def test_a_plan_is_this_processs_once_it_is_used(machine, monkeypatch):
    machine.has(gpus=4)
    chosen = plan(num_gpus=2, num_intra_threads=3, num_inter_threads=5)
    assert machine.visible is None
    pools: dict[str, int] = {}
    for name in ("intra", "inter"):
        setter = functools.partial(pools.__setitem__, name)
        monkeypatch.setattr(tf2.config.threading, f"set_{name}_op_parallelism_threads", setter)
    devices.use_devices(chosen.session_config, chosen.gpus)
    assert machine.visible == ["GPU:0", "GPU:1"]
    assert pools == {"intra": 3, "inter": 5}


@pytest.mark.parametrize("num_gpus", [0, 1])
def test_gpus_that_are_not_asked_for_are_hidden_from_sessions_too(machine, num_gpus):
    machine.has(gpus=4)
    chosen = plan(num_gpus=num_gpus)
    # A v1 session with a ConfigProto of its own knows nothing of tf.config's visible devices.
    assert chosen.session_config.device_count["GPU"] == num_gpus
    assert "GPU" in chosen.session_config.device_count


def test_no_gpus_asked_for_means_the_cpu(machine):
    machine.has(cores=2, gpus=4)
    chosen = plan(num_gpus=0)
    assert chosen.tower_devices == ("/cpu:0", "/cpu:0")
    assert chosen.gpus == ()


def test_several_towers_may_share_a_gpu(machine):
    machine.has(gpus=2)
    assert plan(num_towers=4).tower_devices == ("/gpu:0", "/gpu:1", "/gpu:0", "/gpu:1")


def test_the_variable_strategy_places_the_variables(machine):
    machine.has(gpus=2)
    assert plan().variable_devices == ("/cpu:0",)
    assert plan(variable_strategy="GPU").variable_devices == ("/gpu:0", "/gpu:1")


def test_gradients_are_summed_by_nccl_over_several_gpus_and_on_the_cpu_else(machine):
    assert plan().reduction == "cpu"
    machine.has(gpus=1)
    assert plan(num_towers=2).reduction == "cpu"
    machine.has(gpus=2)
    assert plan().reduction == "nccl"
    assert plan(gradient_reduction="cpu").reduction == "cpu"
    assert plan(num_gpus=1).reduction == "cpu"


def test_other_systems_than_linux_have_no_nccl(machine, monkeypatch):
    machine.has(gpus=2)
    monkeypatch.setattr(sys, "platform", "win32")
    assert plan().reduction == "cpu"


@pytest.mark.parametrize("gpus", [0, 1])
def test_nccl_without_several_gpus_is_refused(machine, gpus):
    machine.has(gpus=gpus)
    with pytest.raises(ConfigError) as refused:
        plan(gradient_reduction="nccl")
    assert str(refused.value) == (
        f"--gradient-reduction nccl sums over several GPUs, and this run uses {gpus}; leave it out"
    )


@pytest.mark.parametrize(
    ("precision", "data_format", "dtype", "scaled"),
    [
        ("fp32", "channels_first", tf2.float32, False),
        ("bf16", "channels_last", tf2.bfloat16, False),
        ("fp16", "channels_last", tf2.float16, True),
    ],
)
def test_a_gpu_gets_the_layout_that_its_precision_wants(
    machine, precision, data_format, dtype, scaled
):
    machine.has(gpus=1)
    chosen = plan(precision=precision)
    assert chosen.data_format == data_format
    assert chosen.compute_dtype == dtype
    assert chosen.loss_scaling == scaled


@pytest.mark.parametrize("model", ["resnet", "fastnet", "mlp"])
def test_bf16_on_a_cpu_is_every_models_own(machine, model):
    machine.has(flags="avx512f avx512_bf16")
    assert plan(precision="bf16", model=model).compute_dtype == tf2.bfloat16


@pytest.mark.parametrize(
    ("precision", "hardware", "reason"),
    [
        ("fp16", {}, "needs a GPU; no CPU that TensorFlow 2.15 knows computes in fp16"),
        ("bf16", {}, "needs a CPU with avx512_bf16 or amx_bf16, and this one has neither"),
        (
            "fp16",
            {"gpus": 1, "capability": (6, 1)},
            "needs compute capability 7.0, this GPU has 6.1",
        ),
        (
            "bf16",
            {"gpus": 1, "capability": (7, 5)},
            "needs compute capability 8.0, this GPU has 7.5",
        ),
    ],
)
def test_a_precision_that_the_device_has_not_is_refused_with_the_reason(
    machine, precision, hardware, reason
):
    machine.has(**hardware)
    with pytest.raises(ConfigError) as refused:
        plan(precision=precision)
    assert str(refused.value) == f"--precision {precision} {reason}; use --precision fp32"


def plan_of_share(position: int, count: int, **settings: Any) -> devices.DevicePlan:
    return devices.plan_devices(TrainConfig(**settings), (position, count))


@pytest.mark.parametrize(
    ("cores", "trainers", "towers"), [(8, 1, 8), (8, 2, 4), (8, 3, 2), (2, 2, 1), (2, 4, 1)]
)
def test_trainers_on_one_machine_share_out_its_cores(
    monkeypatch, tmp_path, cores, trainers, towers
):
    monkeypatch.setenv("CIFAR10_OWN_CORES", "0")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    monkeypatch.setattr(cpu, "_cgroup_quota", lambda folder: None)
    for position in range(trainers):
        chosen = plan_of_share(position, trainers, train_batch_size=128, num_gpus=0)
        assert chosen.num_towers == towers
        session = chosen.session_config
        assert session.inter_op_parallelism_threads == towers
        assert session.intra_op_parallelism_threads == 1 or cores // trainers > towers


def test_cores_that_a_trainer_was_given_alone_are_taken_as_they_are(monkeypatch):
    monkeypatch.setenv("CIFAR10_OWN_CORES", "1")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(cpu, "_cgroup_quota", lambda folder: None)
    assert plan_of_share(1, 4, train_batch_size=128, num_gpus=0).num_towers == 4


def test_whose_the_cores_are_must_be_0_or_1(monkeypatch):
    monkeypatch.setenv("CIFAR10_OWN_CORES", "yes")
    with pytest.raises(ConfigError) as refused:
        plan_of_share(0, 2, num_gpus=0)
    assert str(refused.value) == (
        "CIFAR10_OWN_CORES must be 1, for cores that this task has alone, or 0, for cores that the "
        "trainers of this host share, got 'yes'; unset it, and the task looks by itself"
    )


@pytest.mark.parametrize(
    ("gpus", "trainers", "shares"),
    [
        (4, 1, [["GPU:0", "GPU:1", "GPU:2", "GPU:3"]]),
        (4, 2, [["GPU:0", "GPU:1"], ["GPU:2", "GPU:3"]]),
        (3, 2, [["GPU:0"], ["GPU:1", "GPU:2"]]),
        (2, 2, [["GPU:0"], ["GPU:1"]]),
        # Fewer than one each: all of them for everyone.
        (1, 2, [["GPU:0"], ["GPU:0"]]),
    ],
)
def test_trainers_on_one_machine_share_out_its_gpus(machine, monkeypatch, gpus, trainers, shares):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine.has(gpus=gpus)
    for position, share in enumerate(shares):
        chosen = plan_of_share(position, trainers, train_batch_size=12)
        assert chosen.gpus == tuple(share)
        assert chosen.tower_devices == tuple(f"/gpu:{index}" for index in range(len(share)))


def test_gpus_that_somebody_has_shared_out_already_are_taken_as_they_are(machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    machine.has(gpus=2)
    assert plan_of_share(1, 2).gpus == ("GPU:0", "GPU:1")


def test_a_trainer_cannot_ask_for_more_gpus_than_its_share(machine, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine.has(gpus=4)
    with pytest.raises(ConfigError, match="must be at most the GPUs that TensorFlow sees, 2"):
        plan_of_share(0, 2, num_gpus=3)


def test_a_plan_knows_whether_its_towers_are_on_gpus(machine):
    assert not plan().on_gpus
    machine.has(gpus=2)
    assert plan().on_gpus


NEEDED = "abm avx2 bmi1 bmi2 f16c fma movbe"


def test_a_plan_takes_our_convolutions_where_they_can_be_had(machine, monkeypatch):
    machine.has(flags=NEEDED)
    monkeypatch.setattr(devices.library, "why_not", lambda flags: None)
    for kernels in ("auto", "own"):
        assert plan(kernels=kernels).own_kernels
        assert plan(kernels=kernels).kernels_missing is None


def test_a_plan_says_why_our_convolutions_are_missing(machine, monkeypatch):
    monkeypatch.setattr(devices.library, "why_not", lambda flags: "they are not compiled (make)")
    assert not plan().own_kernels
    assert plan().kernels_missing == "they are not compiled (make)"
    with pytest.raises(ConfigError) as caught:
        plan(kernels="own")
    assert str(caught.value) == (
        "--kernels own cannot be had: they are not compiled (make); --kernels auto does without"
    )


def test_a_plan_multiplies_pairs_in_bf16_where_the_cpu_can(machine, monkeypatch):
    monkeypatch.setattr(devices.library, "why_not", lambda flags: None)
    monkeypatch.setattr(devices.library, "multiplies_pairs", lambda: True)
    monkeypatch.setattr(devices.library, "multiplies_matrices", lambda: False)
    machine.has(flags=f"{NEEDED} avx512_bf16")
    assert plan(kernels="pairs", precision="bf16").pairs
    assert plan(kernels="pairs", precision="bf16").own_kernels
    assert plan(precision="bf16").pairs
    assert not plan().pairs
    assert not plan(precision="bf16", mode="evaluate").pairs
    assert not plan(precision="bf16", model="mlp").pairs
    for kernels in ("own", "tensorflow"):
        assert not plan(kernels=kernels, precision="bf16").pairs
    with pytest.raises(ConfigError) as caught:
        plan(kernels="pairs")
    assert str(caught.value) == (
        "--kernels pairs cannot be had: it is for --precision bf16, and this is fp32; "
        "--kernels auto does without"
    )
    machine.has(flags=f"{NEEDED} amx_bf16")
    with pytest.raises(ConfigError, match="--kernels pairs cannot be had: this CPU has no avx512_"):
        plan(kernels="pairs", precision="bf16")


def test_a_plan_prefers_matrices_which_round_less_to_pairs(machine, monkeypatch):
    monkeypatch.setattr(devices.library, "why_not", lambda flags: None)
    monkeypatch.setattr(devices.library, "multiplies_pairs", lambda: True)
    monkeypatch.setattr(devices.library, "multiplies_matrices", lambda: True)
    machine.has(flags=f"{NEEDED} avx512_bf16 amx_bf16")
    assert plan(precision="bf16").own_kernels
    assert not plan(precision="bf16").pairs
    assert plan(kernels="pairs", precision="bf16").pairs


def test_pairs_are_refused_where_a_variable_forbids_them(machine, monkeypatch):
    monkeypatch.setattr(devices.library, "why_not", lambda flags: None)
    monkeypatch.setattr(devices.library, "multiplies_pairs", lambda: False)
    machine.has(flags=f"{NEEDED} avx512_bf16")
    with pytest.raises(ConfigError) as caught:
        plan(kernels="pairs", precision="bf16")
    assert str(caught.value) == (
        "--kernels pairs cannot be had: CIFAR10_KERNELS_ISA or ONEDNN_MAX_CPU_ISA does not let "
        "them use avx512_bf16; --kernels auto does without"
    )
    for kernels in ("auto", "own"):
        assert plan(kernels=kernels, precision="bf16").own_kernels
        assert not plan(kernels=kernels, precision="bf16").pairs


def test_an_evaluation_does_not_need_what_multiplies_pairs(machine, monkeypatch):
    monkeypatch.setattr(devices.library, "why_not", lambda flags: None)
    monkeypatch.setattr(devices.library, "multiplies_pairs", lambda: False)
    for flags, precision in ((NEEDED, "fp32"), (f"{NEEDED} amx_bf16", "bf16")):
        machine.has(flags=flags)
        found = plan(kernels="pairs", precision=precision, mode="evaluate")
        assert (found.own_kernels, found.pairs) == (True, False)


def test_nobody_misses_what_was_not_wanted(machine, monkeypatch):
    monkeypatch.setattr(devices.library, "why_not", lambda flags: None)
    assert not plan(kernels="tensorflow").own_kernels
    assert plan(kernels="tensorflow").kernels_missing is None


@pytest.mark.parametrize(
    ("settings", "title"),
    [
        ({"model": "mlp"}, "MLP, 100 hidden units in channels_last"),
        ({"data_format": "channels_first"}, "ResNet-44 v1 in channels_first"),
        ({"model": "fastnet", "data_format": "channels_first"}, "fastnet in channels_first"),
    ],
)
def test_our_convolutions_are_refused_to_who_has_none_that_they_compute(
    machine, monkeypatch, settings, title
):
    monkeypatch.setattr(devices.library, "why_not", lambda flags: None)
    with pytest.raises(ConfigError) as caught:
        plan(kernels="own", **settings)
    assert str(caught.value) == (
        f"--kernels own cannot be had: {title} has no convolution that they compute; "
        "--kernels auto does without"
    )
    assert not plan(**settings).own_kernels
    assert plan(**settings).kernels_missing is None


@pytest.mark.parametrize("model", ["resnet", "resnet_v2", "fastnet"])
def test_every_model_that_has_some_of_our_convolutions_gets_and_misses_them(
    machine, monkeypatch, model
):
    settings = {"model": model, "num_layers": None if model == "fastnet" else 8}
    monkeypatch.setattr(devices.library, "why_not", lambda flags: None)
    assert plan(kernels="own", **settings).own_kernels
    monkeypatch.setattr(devices.library, "why_not", lambda flags: "they are not compiled (make)")
    assert plan(**settings).kernels_missing == "they are not compiled (make)"
    # Nobody misses what is of no use: images in another layout, on other devices, or in an export.
    assert plan(data_format="channels_first", **settings).kernels_missing is None
    assert plan(mode="export", **settings).kernels_missing is None


def test_our_convolutions_are_for_training_and_evaluation(machine, monkeypatch):
    monkeypatch.setattr(devices.library, "why_not", lambda flags: None)
    assert plan(mode="evaluate").own_kernels
    assert not plan(mode="predict", images=("cat.png",)).own_kernels
    assert not plan(mode="export").own_kernels
    with pytest.raises(
        ConfigError, match="they are for training and evaluation, and this is --mode export"
    ):
        plan(mode="export", kernels="own")


def test_an_in_graph_master_does_without_our_convolutions(machine, monkeypatch):
    monkeypatch.setattr(devices.library, "why_not", lambda flags: None)
    assert not plan(replication="in-graph").own_kernels
    with pytest.raises(ConfigError, match="does not know what is compiled on other machines"):
        plan(replication="in-graph", kernels="own")


def test_our_convolutions_are_not_for_gpus(machine):
    machine.has(gpus=1, flags=NEEDED)
    assert not plan().own_kernels
    assert plan().kernels_missing is None
    with pytest.raises(ConfigError, match="they are for CPUs"):
        plan(kernels="own")
