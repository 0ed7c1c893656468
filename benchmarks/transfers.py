"""What crosses between a trainer and its parameter servers in one step: how often, how many bytes.

    python -m benchmarks transfers --num-layers=44 --train-batch-size=16

takes the flags of cifar10_main.py, and `--ps-hosts` for the number of parameter servers. It starts
real servers in this process, trains two steps, and reads the second step's graphs as TensorFlow
cut them for each task, with what hooks fetch of the step: its report, or the global step in the
plain way, which for comparison is a variable a weight on the parameter servers, as
tf.train.replica_device_setter places them.
"""

import collections
import json
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks.bare_step import fixed_batch
from cifar10 import models
from cifar10.cluster.shutdown import task_device
from cifar10.config import flags
from cifar10.ops.layers import Layers
from cifar10.step import towers, training_step
from cifar10.step.devices import DevicePlan, plan_devices
from cifar10.step.model_fn import model_fn
from cifar10.step.params import ModelParams
from cifar10.step.replication import Replication
from cifar10.weights.separate import SeparateVariables

_MASTER = "/job:master/task:0"


def main(argv: Sequence[str]) -> None:
    """Prints a JSON line for the packed way and one for the plain way."""
    tf.logging.set_verbosity(tf.logging.FATAL)
    config = flags.parse(argv)
    num_ps = len((config.ps_hosts or "one").split(","))
    plan = plan_devices(config)
    cluster = {"master": [_free_address()], "ps": [_free_address() for _ in range(num_ps)]}
    servers = [
        tf.distribute.Server(cluster, job_name=job, task_index=index)
        for job, tasks in cluster.items()
        for index in range(len(tasks))
    ]
    for name, make in (("packed", _packed), ("plain", _plain)):
        with tf.Graph().as_default(), tf.Session(servers[0].target) as session:
            tf.train.create_global_step()
            step = make(config, plan, num_ps)
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            session.run(step)
            metadata = tf.RunMetadata()
            options = tf.RunOptions(output_partition_graphs=True)
            session.run(step, options=options, run_metadata=metadata)
            sizes = _sizes(tf.get_default_graph())
        print(json.dumps({"way": name, "ps": num_ps, **_count(metadata.partition_graphs, sizes)}))


def _packed(config: Any, plan: DevicePlan, num_ps: int) -> Any:
    """The product's own training step."""
    replication = Replication(
        tuple(task_device("ps", index) for index in range(num_ps)),
        tuple(_MASTER + device for device in plan.tower_devices),
        _MASTER,
        transfer_dtype=tf.bfloat16 if config.ps_transfer == "bf16" else tf.float32,
    )
    params = ModelParams(config, plan, 45_000, 1_000, replication=replication)
    with tf.device(_MASTER):
        images, labels = fixed_batch(config.train_batch_size)
    train_op = model_fn(images, labels, "train", params).train_op
    return train_op, f"{training_step.REPORT}:0"


def _plain(config: Any, plan: DevicePlan, num_ps: int) -> Any:
    """One tower, one variable a weight, one update a variable."""
    place = tf.train.replica_device_setter(num_ps, worker_device=_MASTER)
    with tf.device(_MASTER):
        images, labels = fixed_batch(config.train_batch_size)
        (tower,) = towers.build_towers(
            models.network(config),
            Layers(training=True, data_format=plan.data_format),
            lambda part: tf.cast(part, tf.float32),
            images,
            labels,
            ["/cpu:0"],
            [SeparateVariables(place)],
        )
        loss = tf.losses.sparse_softmax_cross_entropy(labels, tower.logits)
        step = tf.train.get_global_step()
        return tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss, step), step


def _sizes(graph: Any) -> dict[str, int]:
    """Bytes of every tensor whose shape is known, by name."""
    return {
        tensor.name: int(np.prod(tensor.shape.as_list())) * tensor.dtype.size
        for op in graph.get_operations()
        for tensor in op.outputs
        if tensor.shape.is_fully_defined() and tensor.dtype.size
    }


def _count(graphs: Any, sizes: dict[str, int]) -> dict[str, Any]:
    """Counts what is sent to another task; control signals are transfers of no bytes."""
    count: collections.Counter[str] = collections.Counter()
    size: collections.Counter[str] = collections.Counter()
    for graph in graphs:
        for node in graph.node:
            if node.op not in ("_Send", "_HostSend"):
                continue
            source, target = (
                node.attr[name].s.decode().split("/device")[0]
                for name in ("send_device", "recv_device")
            )
            if source == target:
                continue
            way = f"{source.split('/')[1][4:]}->{target.split('/')[1][4:]}"
            count[way] += 1
            name, _, output = node.input[0].partition(":")
            size[way] += sizes.get(f"{name}:{output or 0}", 0)
    return {"transfers": sum(count.values()), "bytes": sum(size.values()), "by_way": dict(count)}


def _free_address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"
