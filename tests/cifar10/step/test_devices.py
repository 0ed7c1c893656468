"""What a machine gives a run: cores, towers, threads, GPUs, precisions; and what it refuses."""

import functools
from typing import Any, Optional

import pytest
import tensorflow as tf2

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.step import devices
from cifar10.step.devices import ThreadSetting, rule


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


def refusal(**settings: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        plan(**settings)
    return str(refused.value)


def test_a_cpu_plan_is_fp32_channels_last(machine):
    machine.has(cores=2)
    chosen = plan()
    assert (chosen.data_format, chosen.compute_dtype) == ("channels_last", tf2.float32)
    assert chosen.summary == "2 towers on 2 CPU cores, fp32"
    assert plan(num_towers=1).summary == "1 tower on 2 CPU cores, fp32"


@pytest.mark.parametrize(
    ("hardware", "settings", "line"),
    [
        ({"gpus": 3}, {}, "got 128 images for 3 towers"),
        (
            {},
            {"num_gpus": 1},
            "--num-gpus must be at most the GPUs that TensorFlow sees, 0, got 1; --num-gpus=0 "
            "trains on the CPU",
        ),
        (
            {},
            {"data_format": "channels_first"},
            "is for GPUs, and this run uses none; leave it out",
        ),
        ({}, {"variable_strategy": "GPU"}, "--variable-strategy GPU needs GPUs, and TensorFlow"),
        (
            {"gpus": 2},
            {"num_towers": 3, "train_batch_size": 9},
            "a multiple of the GPUs, got 3 towers on 2 GPUs; ",
        ),
        (
            {"gpus": 1},
            {"gradient_reduction": "nccl"},
            "--gradient-reduction nccl sums over several GPUs, and this run uses 1; leave it out",
        ),
        (
            {},
            {"precision": "fp16"},
            "--precision fp16 needs a GPU; no CPU that TensorFlow 2.15 knows computes in fp16; "
            "use --precision fp32",
        ),
        (
            {},
            {"precision": "bf16"},
            "needs a CPU with avx512_bf16 or amx_bf16, and this one has neither",
        ),
        (
            {"gpus": 1, "capability": (6, 1)},
            {"precision": "fp16"},
            "needs compute capability 7.0, this GPU has 6.1",
        ),
        (
            {"gpus": 1, "capability": (7, 5)},
            {"precision": "bf16"},
            "needs compute capability 8.0, this GPU has 7.5",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_machine_has_not_is_refused_with_the_reason(machine, hardware, settings, line):
    machine.has(**hardware)
    assert line in refusal(**settings)


def test_a_plan_is_this_processs_once_it_is_used(machine, monkeypatch):
    machine.has(gpus=4)
    chosen = plan(num_gpus=2, num_intra_threads=3, num_inter_threads=5)
    assert machine.visible is None
    pools: dict[str, int] = {}
    for name in ("intra", "inter"):
        setter = functools.partial(pools.__setitem__, name)
        monkeypatch.setattr(tf2.config.threading, f"set_{name}_op_parallelism_threads", setter)
    monkeypatch.setattr(devices, "_pools", {})
    devices.use_devices(chosen.session_config, chosen.gpus)
    assert machine.visible == ["GPU:0", "GPU:1"]
    assert pools == {"intra": 3, "inter": 5}
    # A v1 session with a ConfigProto of its own knows nothing of tf.config's visible devices.
    assert chosen.session_config.device_count["GPU"] == 2
    # The pools of a process keep their sizes: a later run in it has them, if it asks for no others.
    later = plan(num_gpus=2, num_inter_threads=7).session_config
    assert later.intra_op_parallelism_threads == 3
    assert later.inter_op_parallelism_threads == 7


_POOL = """
import time
import tensorflow.compat.v1 as tf
from cifar10.input.pipeline import NO_GPU
from cifar10.step import devices

config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
devices.use_devices(config, [])
for setting in (NO_GPU, config):
    with tf.Graph().as_default(), tf.Session(config=setting) as session:
        product = tf.reduce_sum(tf.matmul(*[tf.random.uniform([3000, 3000])] * 2))
        cpu, wall = time.process_time(), time.perf_counter()
        session.run(product)
print((time.process_time() - cpu) / (time.perf_counter() - wall))
"""


@pytest.mark.system
def test_the_pool_of_all_sessions_has_the_runs_size_whoever_comes_first(forks):
    done = forks.run_code(_POOL)
    assert float(done.stdout) < 1.3, done.stderr  # cores in use


@pytest.mark.parametrize(
    ("gpus", "settings", "towers", "summary"),
    [
        (4, {}, [0, 1, 2, 3], "4 towers on 4 GPUs, fp32"),
        (4, {"num_gpus": 2}, [0, 1], "2 towers on 2 GPUs, fp32"),
        (2, {"num_towers": 4}, [0, 1, 0, 1], "4 towers on 2 GPUs, fp32"),
    ],
)
def test_towers_share_the_gpus(machine, gpus, settings, towers, summary):
    machine.has(gpus=gpus)
    chosen = plan(**settings)
    assert chosen.tower_devices == tuple(f"/gpu:{index}" for index in towers)
    assert chosen.gpus == tuple(f"GPU:{index}" for index in sorted(set(towers)))
    assert chosen.summary == summary


def test_the_variable_strategy_places_the_variables(machine):
    machine.has(gpus=2)
    assert plan().variable_devices == ("/cpu:0",)
    assert plan(variable_strategy="GPU").variable_devices == ("/gpu:0", "/gpu:1")


def test_gradients_are_summed_by_nccl_over_several_gpus_and_on_the_cpu_else(machine):
    assert plan().reduction == "cpu"
    machine.has(gpus=2)
    assert plan().reduction == "nccl"
    assert plan(gradient_reduction="cpu").reduction == plan(num_gpus=1).reduction == "cpu"


@pytest.mark.parametrize(
    ("precision", "data_format", "dtype"),
    [
        ("fp32", "channels_first", tf2.float32),
        ("bf16", "channels_last", tf2.bfloat16),
        ("fp16", "channels_last", tf2.float16),
    ],
)
def test_a_gpu_gets_the_layout_that_its_precision_wants(machine, precision, data_format, dtype):
    machine.has(gpus=1)
    chosen = plan(precision=precision)
    assert chosen.data_format == data_format
    assert chosen.compute_dtype == dtype


@pytest.mark.parametrize(
    ("gpus", "trainers", "shares"),
    [
        (4, 2, [["GPU:0", "GPU:1"], ["GPU:2", "GPU:3"]]),
        (3, 2, [["GPU:0"], ["GPU:1", "GPU:2"]]),
        # Fewer than one each: all of them for everyone.
        (1, 2, [["GPU:0"], ["GPU:0"]]),
    ],
)
def test_trainers_on_one_machine_share_out_its_gpus(machine, monkeypatch, gpus, trainers, shares):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine.has(gpus=gpus)
    for position, share in enumerate(shares):
        config = TrainConfig(train_batch_size=12)
        assert devices.plan_devices(config, (position, trainers)).gpus == tuple(share)
    # Those that somebody has shared out already are taken as they are.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert len(devices.plan_devices(TrainConfig(train_batch_size=12), (1, 2)).gpus) == gpus


@pytest.mark.parametrize(
    ("gpus", "settings", "environment", "says"),
    [
        (0, {}, {}, True),
        (0, {"num_gpus": 0}, {}, False),
        (0, {}, {"CUDA_VISIBLE_DEVICES": ""}, False),
        (1, {}, {}, False),
    ],
    ids=["unseen", "not wanted", "hidden", "seen"],
)
def test_a_line_says_that_tensorflow_does_not_see_the_machines_gpu(
    machine, monkeypatch, tmp_path, capsys, gpus, settings, environment, says
):
    machine.has(gpus=gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(devices, "_NVIDIA", (str(tmp_path / "nvidia0"), str(tmp_path)))
    plan(**settings)
    line = (
        f"this machine has an NVIDIA device ({tmp_path}), but TensorFlow sees no GPU, so the CPU "
        "computes; --verbose shows TensorFlow's reason, docs/install.md how to install it with "
        "CUDA, and --num-gpus=0 leaves out this line\n"
    )
    assert capsys.readouterr().err == (line if says else "")
    monkeypatch.setattr(devices, "_NVIDIA", (str(tmp_path / "nvidia0"),))
    plan(**settings)
    assert capsys.readouterr().err == ""


# What our convolutions need of a CPU, and the set that multiplies pairs of bfloat16s.
NEEDED = "abm avx2 bmi1 bmi2 f16c fma movbe"
PAIRS = f"{NEEDED} avx512_bf16"


@pytest.fixture
def compiled(machine, monkeypatch):
    """A machine with our compiled convolutions, which may multiply pairs and not matrices."""
    machine.has(flags=PAIRS)
    monkeypatch.setattr(devices.kernels, "instructions", lambda: devices.kernels.BF16_DOTS)
    monkeypatch.setattr(devices.kernels, "why_not", lambda flags: None)
    return machine


@pytest.mark.parametrize(
    ("settings", "kernels"),
    [
        ({}, "own"),
        ({"model": "fastnet"}, "own"),
        ({"kernels": "own"}, "own"),
        ({"precision": "bf16"}, "pairs"),
        ({"precision": "bf16", "kernels": "own"}, "own"),
        ({"precision": "bf16", "mode": "evaluate"}, "own"),
        ({"precision": "bf16", "kernels": "tensorflow"}, "tensorflow"),
        ({"mode": "export"}, "tensorflow"),
        ({"model": "mlp"}, "tensorflow"),
    ],
    ids=str,
)
def test_a_plan_takes_our_convolutions_where_they_can_be_had(compiled, settings, kernels):
    found = plan(**settings)
    assert found.kernels == kernels
    assert found.kernels_missing is None


@pytest.mark.parametrize(
    ("settings", "hardware", "reason"),
    [
        ({"model": "mlp"}, {}, "MLP, 100 hidden units has no convolution that they compute"),
        ({"replication": "in-graph"}, {}, "an in-graph chief does not know what is com"),
        ({}, {"gpus": 1}, "they are for CPUs"),
    ],
    ids=str,
)
def test_our_convolutions_are_refused_with_the_reason(compiled, settings, hardware, reason):
    compiled.has(**{"flags": PAIRS, **hardware})
    line = refusal(kernels="own", **settings)
    assert line.startswith(f"--kernels own is not available: {reason}")


def test_a_plan_says_why_our_convolutions_are_missing(machine, monkeypatch):
    monkeypatch.setattr(devices.kernels, "why_not", lambda flags: "they are not compiled (make)")
    assert plan().kernels == "tensorflow"
    assert plan().kernels_missing == "they are not compiled (make)"
    # Nobody misses what is of no use.
    assert plan(model="mlp").kernels_missing is None
    assert refusal(kernels="own") == (
        "--kernels own is not available: they are not compiled (make); --kernels auto does without"
    )


def test_a_plan_prefers_matrices_which_round_less_to_pairs(compiled, monkeypatch):
    monkeypatch.setattr(devices.kernels, "instructions", lambda: devices.kernels.MATRICES)
    compiled.has(flags=f"{PAIRS} amx_bf16")
    assert plan(precision="bf16").kernels == "own"


@pytest.mark.parametrize(
    ("cores", "settings", "expected"),
    [
        (8, {}, (8, 8, 1)),
        # 8 images a tower at least: fewer towers share the cores inside ops.
        (64, {}, (16, 16, 64)),
        (2, {"train_batch_size": 16}, (2, 2, 1)),
        (2, {"train_batch_size": 15}, (1, 1, 2)),
        # Towers of equal size.
        (2, {"train_batch_size": 129}, (1, 1, 2)),
        (6, {}, (4, 4, 6)),
        (8, {"train_batch_size": 40}, (5, 5, 8)),
        # What a flag says is left as it is; 0 threads: TensorFlow chooses.
        (2, {"num_towers": 4}, (4, 4, 1)),
        (8, {"num_towers": 4}, (4, 4, 8)),
        (2, {"num_intra_threads": 0, "num_inter_threads": 7}, (2, 7, 0)),
        (2, {"num_inter_threads": 0}, (2, 0, 1)),
    ],
)
def test_a_tower_a_core_or_fewer_that_share_them(cores: int, settings: Any, expected: Any):
    config = TrainConfig(**{"train_batch_size": 128, **settings})
    assert rule(config, cores) == ThreadSetting(*expected)
