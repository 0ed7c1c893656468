"""Settings of clusters: which task a process is, and how it trains with the others."""

import contextlib
import threading
import types
from collections.abc import Iterator
from typing import Any, Callable
from unittest import mock

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10 import main
from cifar10.cluster import resolve as resolving
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.resolve import resolve
from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, TrainingError
from cifar10.host.activity import STEP, Activity
from cifar10.host.signals import StopRequest
from cifar10.run import parameter_server, stall_watch
from cifar10.run.cluster_session import ClusterSession
from cifar10.step import model_fn
from cifar10.step.devices import plan_devices
from cifar10.step.params import ModelParams
from cifar10.step.replication import Replication
from testbeds.ports import free_ports
from tests.cifar10.flag_effects.rows import Row

_ELSEWHERE = "192.0.2.1"  # in a network reserved for documentation, RFC 5737
_BATCH = 4


def _cluster(config: TrainConfig) -> Cluster:
    found = resolve(config, {})
    assert found is not None
    return found


def task(config: TrainConfig) -> str:
    """Returns the label and the address of this process's task."""
    cluster = _cluster(config)
    return f"{cluster.label} at {cluster.address}"


def parameter_servers(config: TrainConfig) -> tuple[str, ...]:
    """Returns the addresses of the parameter servers."""
    return _cluster(config).ps_addresses


@contextlib.contextmanager
def _no_server() -> Iterator[None]:
    """Replaces the TensorFlow server, so that sessions are local and no port is opened."""
    server = types.SimpleNamespace(target="")
    with mock.patch("cifar10.cluster.server.start", return_value=server):
        yield


def _session(config: TrainConfig) -> ClusterSession:
    """Returns a ClusterSession whose TensorFlow sessions are local; no port is opened."""
    return ClusterSession(config, _cluster(config), plan_devices(config), target="")


def _replication(config: TrainConfig) -> Replication:
    return _session(config).replication()


def gradients_an_update(config: TrainConfig) -> Any:
    """Returns how many replicas' gradients make an update; None: each replica's alone."""
    return _replication(config).replicas_to_aggregate


def driven_from_here(config: TrainConfig) -> tuple[int, list[str]]:
    """Returns the number of replicas, and the tasks of this process's towers."""
    found = _replication(config)
    specs = [tf.DeviceSpec.from_string(device) for device in found.tower_devices]
    return found.num_replicas, sorted(f"{spec.job}/{spec.task}" for spec in specs)


def towers_on_gpus_in_graph(config: TrainConfig) -> list[str]:
    """Returns the GPU of each tower on worker/0 if each task has two GPUs, or the refusal."""
    names = [
        f"/job:{job}/replica:0/task:{index}/device:GPU:{gpu}"
        for job, index in _cluster(config).trainers
        for gpu in range(2)
    ]
    found = [types.SimpleNamespace(name=name) for name in names]
    with mock.patch.object(tf.Session, "list_devices", return_value=found):
        try:
            towers = _replication(config).tower_devices
        except ConfigError as error:
            return [str(error)]
    return [
        name.rsplit("/", 1)[-1]
        for name in towers
        if name.startswith("/job:worker/replica:0/task:0/")
    ]


def sent_in_bfloat16(config: TrainConfig) -> dict[str, int]:
    """Counts the casts to bfloat16 on the ps (of weights) and on the worker (of gradients)."""
    params = ModelParams(config, plan_devices(config), 10, 10, replication=_replication(config))
    images, labels = np.zeros((_BATCH, 32, 32, 3), np.uint8), np.zeros(_BATCH, np.int64)
    with tf.Graph().as_default() as graph:
        tf.train.create_global_step()
        model_fn.model_fn(tf.constant(images), tf.constant(labels), "train", params)
        casts = [
            op
            for op in graph.get_operations()
            if op.type == "Cast" and op.get_attr("DstT") == tf.bfloat16
        ]
    servers = [op for op in casts if "/job:ps" in op.device]
    return {"on the ps": len(servers), "on the worker": len(casts) - len(servers)}


def trainer_gives_up(config: TrainConfig) -> str:
    """Returns the error of a trainer whose parameter server never answers."""
    session = _session(config)
    try:
        session.join(lambda: None)
    except TrainingError as error:
        return _told(error)
    finally:
        session.tell_end()
    raise AssertionError("nobody answers, and the trainer goes on")


def stall_gives_up(config: TrainConfig) -> str:
    """Returns the last words of a process whose step does not end; "goes on" if there are none."""
    words: list[str] = []
    ended, over = threading.Event(), threading.Event()

    def end(last: Callable[[], str], code: int) -> None:
        words.append(last())
        ended.set()
        over.wait()

    noted = Activity()
    noted.begin(STEP)
    watch = stall_watch.StallWatch(noted, config.stall_timeout)
    with mock.patch.object(stall_watch, "end_process", end), watch:
        ended.wait(30.0 if config.stall_timeout else 1.0)
    over.set()
    return words[0].partition("; ")[0] if words else "goes on"


def server_gives_up(config: TrainConfig) -> str:
    """Returns the error of a parameter server whose master never answers."""
    watches: list[LivenessMonitor] = []

    def watch(*arguments: Any) -> LivenessMonitor:
        watches.append(LivenessMonitor(*arguments))
        return watches[-1]

    listener = types.SimpleNamespace(is_over=False, master_ended=False, listen=lambda: None)
    with _no_server(), contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(parameter_server, "use_devices"))
        stack.enter_context(mock.patch.object(parameter_server, "LivenessMonitor", watch))
        stack.enter_context(
            mock.patch.object(parameter_server.shutdown, "ShutdownListener", return_value=listener)
        )
        try:
            parameter_server.serve(config, _cluster(config), StopRequest())
        except TrainingError as error:
            return _told(error)
        finally:
            for one in watches:
                one.stop()
    raise AssertionError("nobody answers, and the parameter server goes on")


def _told(error: TrainingError) -> str:
    words = str(error).partition(" has ")[2] or str(error).partition(" have ")[2]
    return words.partition(";")[0]


def notes(config: TrainConfig) -> list[str]:
    """Returns the lines about settings that change nothing."""
    return resolving.notes(config, _cluster(config), {})


def own_address(config: TrainConfig) -> str:
    """Returns `starts`, or the refusal, for a task whose address is not this machine's."""
    with mock.patch.dict("os.environ"):
        try:
            main._find_cluster(config)
        except ConfigError as error:
            return str(error).partition("; ")[0].partition(", but ")[2]
    return "starts"


_FLAGS = {
    "ps_hosts": "--ps-hosts=p:1",
    "worker_hosts": "--worker-hosts=a:1,b:1,c:1",
    "job_name": "--job-name=worker",
    "task_index": "--task-index=0",
}


def _others(setting: str) -> str:
    return " ".join(words for name, words in _FLAGS.items() if name != setting)


_ANY_TOWERS = " ".join(_FLAGS.values()) + f" --model=mlp --train-batch-size={_BATCH}"
_MASTER = f"{_ANY_TOWERS} --num-towers=1"
_PORT = free_ports(1)[0]
_NOBODY = (
    f"--ps-hosts=127.0.0.1:{_PORT} --worker-hosts=127.0.0.1:1 --task-index=0 --model=mlp "
    "--num-towers=1"
)

ROWS = [
    Row(
        "ps_hosts",
        parameter_servers,
        {"p:1": ("p:1",), "p:1,q:2": ("p:1", "q:2")},
        _others("ps_hosts"),
    ),
    Row(
        "worker_hosts",
        task,
        {"a:1,b:1": "worker/0 at a:1", "c:1,b:1": "worker/0 at c:1"},
        _others("worker_hosts"),
    ),
    Row("job_name", task, {"worker": "worker/0 at a:1", "ps": "ps/0 at p:1"}, _others("job_name")),
    Row(
        "task_index", task, {"0": "worker/0 at a:1", "2": "worker/2 at c:1"}, _others("task_index")
    ),
    Row("sync", gradients_an_update, {None: 3, "false": None}, _MASTER),
    Row(
        "num_workers",
        notes,
        {
            None: [],
            "4": [
                "note: --num-workers 4 changes nothing: the cluster has 3 tasks that train "
                "(worker a:1, b:1, c:1)"
            ],
        },
        _MASTER,
    ),
    Row("replicas_to_aggregate", gradients_an_update, {None: 3, "2": 2}, _MASTER),
    Row(
        "replication",
        driven_from_here,
        {
            None: (3, ["master/0"]),
            "in-graph": (1, ["master/0", "worker/0", "worker/1"]),
        },
        _MASTER,
    ),
    Row(
        "num_towers",
        towers_on_gpus_in_graph,
        {
            None: ["device:GPU:0", "device:GPU:1"],
            "4": ["device:GPU:0", "device:GPU:1", "device:GPU:0", "device:GPU:1"],
            "1": [
                "--num-towers must be a multiple of the GPUs, got 1 towers on the 2 GPUs of "
                "worker/0; --num-gpus says there how many to use"
            ],
        },
        f"{_ANY_TOWERS} --replication=in-graph",
    ),
    Row(
        "ps_transfer",
        sent_in_bfloat16,
        {None: {"on the ps": 0, "on the worker": 0}, "bf16": {"on the ps": 1, "on the worker": 1}},
        _MASTER,
    ),
    Row(
        "cluster_timeout",
        trainer_gives_up,
        {
            "0.1": "not answered for 0.1 s (--cluster-timeout)",
            "0.3": "not answered for 0.3 s (--cluster-timeout)",
        },
        f"{_NOBODY} --job-name=worker",
    ),
    Row(
        "cluster_timeout",
        server_gives_up,
        {
            "0.1": "not answered for 0.1 s (--cluster-timeout)",
            "0.3": "not answered for 0.3 s (--cluster-timeout)",
        },
        f"{_NOBODY} --job-name=ps",
    ),
    Row(
        "stall_timeout",
        stall_gives_up,
        {
            "0": "goes on",
            "0.2": "training failed: no progress in a training step for 0.2 s (--stall-timeout)",
            "0.5": "training failed: no progress in a training step for 0.5 s (--stall-timeout)",
        },
    ),
    Row(
        "check_address",
        own_address,
        {None: f"{_ELSEWHERE} is no address of this machine", "false": "starts"},
        f"--worker-hosts={_ELSEWHERE}:{_PORT},b:1 --ps-hosts=p:1 --job-name=worker --task-index=0",
    ),
]
