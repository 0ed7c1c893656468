"""Every setting acts.

A setting that is parsed and then forgotten is the mistake that nobody notices. So each setting has
a row: what a process builds differs with it, or what the tasks of a cluster agree on; or it has a
test of its own. What exactly a setting does is the matter of the tests of the part that uses it.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple, Optional

import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10 import kernels
from cifar10.cluster.resolve import notes, resolve
from cifar10.config.flags import parse
from cifar10.config.settings import flag_name
from cifar10.config.train_config import TrainConfig
from cifar10.host import cpu
from cifar10.input.records import open_records
from cifar10.run import job
from cifar10.schema import EVAL
from cifar10.step import devices, model_fn
from cifar10.step.params import Replication
from cifar10.train import run_config, training_input


@contextlib.contextmanager
def machine(gpus: int) -> Iterator[None]:
    """Simulates a machine with eight cores that have bfloat16, and with a number of GPUs."""
    names, details = [f"GPU:{index}" for index in range(gpus)], {"compute_capability": (9, 0)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "count_cores", lambda **sharing: 8)
        patch.setattr(devices, "cpu_flags", lambda: cpu.cpu_flags() | {"avx512_bf16"})
        patch.setattr(job, "use_devices", lambda *chosen: None)
        patch.setattr(kernels, "instructions", lambda: kernels.BF16_DOTS)
        patch.setattr(tf2.config, "list_physical_devices", lambda kind: names)
        patch.setattr(tf2.config.experimental, "get_device_details", lambda gpu: details)
        patch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
        yield


def nodes(build: Callable[[], Any]) -> list[Any]:
    """The ops of a graph, and of its functions, without the numbers that TensorFlow gives those."""
    with tf.Graph().as_default() as graph:
        build()
        definition = graph.as_graph_def()
    functions = [list(map(described, body.node_def)) for body in definition.library.function]
    return [*map(described, definition.node), *sorted(functions, key=repr)]


def described(node: Any) -> Any:
    return node.op, node.device, [attribute(*item) for item in sorted(node.attr.items())]


def attribute(name: str, value: Any) -> Any:
    numbered = name in ("shared_name", "_gradient_op_type") or value.WhichOneof("value") == "func"
    return name, None if numbered or value.list.func else value.SerializeToString()


def made_of(config: TrainConfig, gpus: int = 0) -> dict[str, Any]:
    """What a process builds: its graphs, where their batches come from, and how it runs them."""
    with machine(gpus):
        made = job.make_job(config, open_records(config.data_path))
        run = run_config(made)
    kept: list[int] = []  # checkpoints

    def graph(mode: str) -> None:
        tf.train.create_global_step()
        images = tf.zeros([config.train_batch_size, 32, 32, 3], tf.uint8)
        labels = tf.zeros([config.train_batch_size], tf.int64)
        spec = model_fn.model_fn(images, labels, mode, made.params)
        if mode == "train":
            kept.append(spec.scaffold.saver.saver_def.max_to_keep)

    return {
        "session": run.session_config.SerializeToString(deterministic=True),
        "seed": run.tf_random_seed,
        "last step": made.params.total_steps,
        "batches": nodes(lambda: training_input(made)),
        "evaluation's batches": nodes(lambda: job.evaluation_input(made, EVAL)),
        "training": nodes(lambda: graph("train")),
        "evaluation": nodes(lambda: graph("eval")),
        "checkpoints": (run.model_dir, config.steps_between_checkpoints(2_000, 10.0), kept),
    }


def agreed_on(config: TrainConfig) -> Any:
    """What a task knows of its cluster and, if it trains, how it trains with the others."""
    cluster = resolve(config, {})
    assert cluster is not None
    if not cluster.is_trainer:
        return cluster
    replication = Replication.of(config, cluster, devices.plan_devices(config))
    return cluster, notes(config, cluster), dataclasses.asdict(replication)


class Row(NamedTuple):
    """A setting, a value of it, another one or None to leave it out, and what else is given."""

    setting: str
    value: str
    other: Optional[str]
    given: str
    gpus: int = 0

    def config(self, folders: list[str], value: Optional[str]) -> TrainConfig:
        given = [] if value is None else [f"{flag_name(self.setting)}={value}"]
        return parse([*folders, *self.given.split(), *given])

    def __str__(self) -> str:
        return f"{self.setting}={self.value}"


def rows(given: str, gpus: int = 0, **values: Any) -> list[Row]:
    """Rows whose settings are left out, or have the second value of two, for comparison."""
    found = []
    for name, value in values.items():
        value, other = value if isinstance(value, tuple) else (value, None)
        found.append(Row(name, value, other, given, gpus))
    return found


MLP = "--model=mlp --train-batch-size=16"
RESNET = "--model=resnet --num-layers=8 --train-batch-size=16 --num-towers=1 --kernels=tensorflow"
CLUSTER = {
    "ps_hosts": "p:1",
    "worker_hosts": "a:1,b:1,c:1",
    "job_name": "worker",
    "task_index": "0",
}

MADE_OF = [
    *rows(MLP, hidden_units="7", train_steps="7", train_epochs="2.5", eval_batch_size="200"),
    *rows(MLP, optimizer="adam", momentum="0.5", learning_rate="0.3", learning_rate_batch="64"),
    *rows(MLP, schedule="linear", warmup_epochs="2", weight_decay="0.1", decay_biases="true"),
    *rows(MLP, label_smoothing="0.1", lookahead_steps="2", seed="2", precision="bf16"),
    *rows(MLP, crop_padding="1", crop_fill="reflect", flip="alternating", cutout="8"),
    *rows(MLP, use_distortion_for_training="false", log_device_placement="true", num_towers="4"),
    *rows(MLP, num_inter_threads="5", num_intra_threads="5", checkpoint_steps="9"),
    *rows(MLP, keep_checkpoints="9"),
    *rows("--model=mlp", train_batch_size=("16", "8")),
    *rows(MLP, gpus=4, num_gpus="2", variable_strategy="GPU", gradient_reduction="cpu"),
]
NETWORKS = [
    *rows(RESNET, batch_norm="off", batch_norm_decay="0.5", batch_norm_epsilon="0.1"),
    *rows(RESNET, residual_scale="0", norm_bias_rate="64"),
    *rows(RESNET, gpus=1, data_format="channels_last"),
    *rows(f"{RESNET} --optimizer=muon", muon_rate="0.1", muon_momentum="0.1"),
    *rows(RESNET.replace("--num-layers=8", ""), num_layers=("8", "14")),
    *rows(RESNET.replace("--kernels=tensorflow", ""), kernels="tensorflow"),
    *rows("--train-batch-size=16 --kernels=tensorflow", model=("fastnet", "fastnet_large")),
    *rows("--model=fastnet --train-batch-size=16", whitening_bias_epochs="1"),
]


def others(setting: str = "") -> str:
    given = [f"{flag_name(name)}={value}" for name, value in CLUSTER.items() if name != setting]
    return " ".join([*given, "--model=mlp --train-batch-size=4 --num-towers=1"])


AGREED_ON = [
    *rows(others("ps_hosts"), ps_hosts=("p:1", "p:1,q:2")),
    *rows(others("worker_hosts"), worker_hosts=("a:1,b:1", "c:1,b:1")),
    *rows(others("job_name"), job_name=("worker", "ps")),
    *rows(others("task_index"), task_index=("0", "2")),
    *rows(others(), sync="false", num_workers="4", replicas_to_aggregate="2"),
    *rows(others(), replication="in-graph", ps_transfer="bf16"),
]

# What these do shows only in a run, or before it: other files of tests/cifar10 test it.
ELSEWHERE = {
    *("mode", "recipe", "images", "json", "checkpoint", "init_checkpoint", "work_dir", "data_dir"),
    *("output_dir", "log_dir", "log_steps", "summary_steps", "profile_steps", "stall_timeout"),
    *("cluster_timeout", "max_minutes", "verbose", "test_time_augmentation"),
    *("early_stopping_epochs", "stop_at_accuracy", "dry_run"),
}


def test_every_setting_has_a_row_and_every_row_a_setting():
    found = {row.setting for row in [*MADE_OF, *NETWORKS, *AGREED_ON]} | ELSEWHERE
    assert found == {field.name for field in dataclasses.fields(TrainConfig)}


def test_the_same_settings_build_the_same(folders):
    config = parse([*MLP.split(), *folders])
    assert made_of(config) == made_of(config)


@pytest.fixture(scope="module")
def folders(tutorial_data: pathlib.Path) -> list[str]:
    return [f"--data-dir={tutorial_data}", "--output-dir=nowhere"]


@pytest.fixture(scope="module")
def made(folders: list[str]) -> Callable[[Row, Optional[str]], Any]:
    """`made_of` for a row's value; what several rows are compared with is made once."""
    known: dict[Any, Any] = {}

    def find(row: Row, value: Optional[str]) -> Any:
        config = row.config(folders, value)
        if (config, row.gpus) not in known:
            known[config, row.gpus] = made_of(config, row.gpus)
        return known[config, row.gpus]

    return find


@pytest.mark.system  # A row takes up to two seconds.
@pytest.mark.parametrize("row", [*MADE_OF, *NETWORKS], ids=str)
def test_what_a_process_builds_differs_with_a_setting(row, made, compiled_kernels):
    assert made(row, row.value) != made(row, row.other)


@pytest.mark.parametrize("row", AGREED_ON, ids=str)
def test_what_tasks_agree_on_differs_with_a_setting(row):
    first, other = (agreed_on(row.config([], value)) for value in (row.value, row.other))
    assert first != other
