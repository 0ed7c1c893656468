"""Means over towers: on the CPU, or over a machine's GPUs by NCCL; the same means either way.

Each way puts together what a machine's towers found, and says on which devices the sum then is.
What crosses to other machines is `update`'s business.

**Why an all-reduce, and not a reduce and a broadcast.** All gradients of a tower are one flat
vector, so one op an update does. With the weights on the GPUs (`--variable-strategy GPU`), each GPU
updates a piece of them and needs that piece of the sum, so that a reduce to one GPU would have to
send it on from there; after an all-reduce each has its piece already. With the weights on the CPU a
reduce to one GPU would do, with half the traffic. But that is some megabytes between GPUs, and
TensorFlow's `NcclReduce` has no kernel: a graph pass has to find and replace it. `NcclAllReduce` is
an op like others, and the one that its own `MirroredStrategy` is built on.
"""

from collections.abc import Mapping, Sequence
from typing import Callable

import tensorflow.compat.v1 as tf

from cifar10.step.towers import machine_of

# The values of one machine's towers, and the towers' devices -> the sum, by devices that hold it.
Sum = Callable[[Sequence[tf.Tensor], Sequence[str]], list[tf.Tensor]]


def mean_by_machine(
    values: Sequence[tf.Tensor], devices: Sequence[str], how: str = "cpu"
) -> list[dict[str, tf.Tensor]]:
    """Reduces what each tower has to what each machine has: only that crosses the network.

    Args:
      values: one tensor a tower, of one shape.
      devices: of the towers.
      how: `cpu` or `nccl`, see `SUMS`.

    Returns:
      A dictionary a machine, from device to a tensor that is there, all the same; those of all
      machines sum up to the mean over all towers.
    """
    machines: dict[str, list[int]] = {}
    for index, device in enumerate(devices):
        machines.setdefault(machine_of(device), []).append(index)
    found = []
    for towers in machines.values():
        sums = SUMS[how]([values[one] for one in towers], [devices[one] for one in towers])
        means = {}
        for total in sums:
            with tf.device(total.device):
                mean = total if len(values) == 1 else total * (1.0 / len(values))
            means[mean.device] = mean
        found.append(means)
    return found


def nearest(held: Mapping[str, tf.Tensor], device: str) -> tf.Tensor:
    """The tensor that is on `device`; the first one where none is."""
    return held.get(device, next(iter(held.values())))


def sum_on_cpu(values: Sequence[tf.Tensor], devices: Sequence[str]) -> list[tf.Tensor]:
    """Sends all values to the machine's CPU and sums them there; a single one stays where it is."""
    if len(values) == 1:
        return [_on(devices[0], values)]
    return [_on(machine_of(devices[0]), values)]


def sum_by_nccl(values: Sequence[tf.Tensor], devices: Sequence[str]) -> list[tf.Tensor]:
    """Sums the values of each GPU's towers there, then those of all GPUs on each of them.

    A machine with a single GPU, or with none, needs no NCCL.
    """
    by_device: dict[str, list[tf.Tensor]] = {}
    for value, device in zip(values, devices):
        by_device.setdefault(device, []).append(value)
    sums = [_on(device, parts) for device, parts in by_device.items()]
    if len(sums) == 1:
        return sums
    reduced = all_reduce(sums)
    # NCCL waits until all GPUs have come. So none of these ops may be left out of a step that
    # another one is in, also where only one GPU's sum is used.
    together = tf.group(*reduced)
    results = []
    for one in reduced:
        with tf.device(one.device), tf.control_dependencies([together]):
            results.append(tf.identity(one))
    return results


def _on(device: str, values: Sequence[tf.Tensor]) -> tf.Tensor:
    with tf.device(device):
        return tf.identity(values[0]) if len(values) == 1 else tf.add_n(values)


def all_reduce(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """One NCCL all-reduce: values on as many GPUs -> their sum on each of these GPUs.

    Args:
      values: float32, float16 or float64, of one shape.
    """
    # All ops of one all-reduce, and no others of this graph, share a name. (TensorFlow adds the
    # number of the step, so other graphs may use it, too.)
    name = tf.get_default_graph().unique_name("all_reduce")
    reduced = []
    for value in values:
        with tf.device(value.device):
            reduced.append(
                tf.raw_ops.NcclAllReduce(
                    input=value, reduction="sum", num_devices=len(values), shared_name=name
                )
            )
    return reduced


SUMS: Mapping[str, Sum] = {"cpu": sum_on_cpu, "nccl": sum_by_nccl}
