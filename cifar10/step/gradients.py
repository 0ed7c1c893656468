"""Computes the towers' gradients, and their mean on the devices of the weights.

The gradients of a machine's towers are summed first, on its CPU or over its GPUs by NCCL. Only that
sum is sent to other machines, in one part per shard of the weights.

**Why an all-reduce, and not a reduce and a broadcast.** All gradients of a tower are one flat
vector, so one op per update is enough. With the weights on the GPUs (`--variable-strategy GPU`),
each GPU updates a shard of them and needs that shard of the sum. After a reduce to one GPU, the
shards would have to be sent on from there; after an all-reduce, each GPU has its shard already.
With the weights on the CPU, a reduce to one GPU would be enough, with half the traffic. But that
saves only a few megabytes between GPUs, and TensorFlow's `NcclReduce` has no kernel: a graph pass
has to find and replace it. `NcclAllReduce` is an ordinary op, and TensorFlow's own
`MirroredStrategy` is built on it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.ops.layers import Layers
from cifar10.optim.decay import scale_and_decay
from cifar10.step.state import TrainingState
from cifar10.step.towers import machine_of, tower_moments


def tower_gradients(
    losses: Sequence[tf.Tensor],
    copies: Sequence[tf.Tensor],
    scale: Optional[tf.mixed_precision.LossScale] = None,
) -> list[tf.Tensor]:
    """Differentiates the towers' losses with respect to each tower's copy of the weights.

    One call differentiates the losses of all towers: where towers share batch statistics, a
    tower's loss also depends on the copies of the others.

    Args:
      losses: the mean loss of each of G towers, float32 scalars.
      copies: each tower's copy of the weights, G tensors float32 [size].
      scale: the factor by which losses are multiplied and gradients divided, so that fp16 does not
        lose small gradients; None: no scaling.

    Returns:
      G gradients, float32 [size], each on its tower's device.

    Raises:
      ValueError: the loss does not depend on the weights.
    """
    scaled = []
    for loss, copy in zip(losses, copies):
        with tf.device(copy.device):
            scaled.append(loss if scale is None else loss * scale())
    gradients = tf.gradients(scaled, copies, colocate_gradients_with_ops=True)
    if any(gradient is None for gradient in gradients):
        raise ValueError("the loss does not depend on the weights")
    unscaled = []
    for gradient, copy in zip(gradients, copies):
        with tf.device(copy.device):
            unscaled.append(gradient if scale is None else gradient / scale())
    return unscaled


def average_gradients(
    gradients: Sequence[tf.Tensor], copies: Sequence[tf.Tensor], state: TrainingState
) -> list[tf.Tensor]:
    """Averages the towers' gradients, scales the offsets' part and adds weight decay.

    Args:
      gradients: one gradient per tower, float32 [size].
      copies: each tower's copy of the weights, float32 [size].
      state: the training state, whose weights the gradients are for.

    Returns:
      One gradient per shard of the weights, float32 [size of the shard], on the shard's device.
    """
    params, replication = state.params, state.params.replication
    machines = mean_by_machine(gradients, replication.tower_devices, params.plan.reduction)
    copy_on = {copy.device: copy for copy in reversed(copies)}
    sent = []  # per machine: device -> one part per shard, in the type that is sent
    for index, held in enumerate(machines):
        ready = {}
        for device, mean in held.items():
            # Only the first machine adds the decay, so that the sum contains it once.
            decayed = copy_on.get(device, copies[0]) if index == 0 else None
            with tf.device(device):
                whole = scale_and_decay(state.decay, state.layout, mean, decayed)
                parts = state.weights.split(whole)
                ready[device] = [tf.cast(part, replication.transfer_dtype) for part in parts]
        sent.append(ready)
    means = []
    for number, shard in enumerate(state.weights.shards):
        parts = [nearest(held, shard.device)[number] for held in sent]
        with tf.device(shard.device):
            means.append(tf.add_n([tf.cast(part, tf.float32) for part in parts]))
    return means


def average_moments(layers: Sequence[Layers], state: TrainingState) -> list[tf.Tensor]:
    """Averages the towers' batch-norm moments on the device of the moving statistics.

    Args:
      layers: the layers of each tower.
      state: the training state, with the moving statistics.

    Returns:
      A list of one tensor, float32 [2 * channels] (see `towers.tower_moments`); an empty list for
      a model without batch normalisation.
    """
    if not state.statistics.shards:
        return []
    device, devices = state.statistics.shards[0].device, state.params.replication.tower_devices
    moments = [tower_moments(*tower) for tower in zip(layers, devices)]
    machines = mean_by_machine(moments, devices, state.params.plan.reduction)
    with tf.device(device):
        return [tf.add_n([nearest(held, device) for held in machines])]


def mean_by_machine(
    values: Sequence[tf.Tensor], devices: Sequence[str], how: str = "cpu"
) -> list[dict[str, tf.Tensor]]:
    """Computes each machine's part of the mean, so that only one tensor per machine is sent.

    Args:
      values: one tensor per tower, all of the same shape.
      devices: the towers' devices.
      how: `cpu` sums on the CPU of the machine, where a single value stays on its device; `nccl`
        sums on each GPU, and then over the GPUs by NCCL.

    Returns:
      One dictionary per machine, which maps a device to the machine's part on that device, of the
      shape of `values`. The parts of all machines add up to the mean over all towers.
    """
    machines: dict[str, list[tuple[str, tf.Tensor]]] = {}
    for device, value in zip(devices, values):
        machines.setdefault(machine_of(device), []).append((device, value))
    found = []
    for cpu, held in machines.items():
        by_device: dict[str, list[tf.Tensor]] = {}
        for device, value in held:
            on = device if how == "nccl" or len(held) == 1 else cpu
            by_device.setdefault(on, []).append(value)
        sums = [_sum_on(device, parts) for device, parts in by_device.items()]
        if len(sums) > 1:
            # NCCL waits until every GPU takes part. So a step must run all of these ops or none,
            # even where it uses the sum of only one GPU.
            sums = list(tf.tuple(all_reduce(sums)))
        means = {}
        for total in sums:
            with tf.device(total.device):
                means[total.device] = total if len(values) == 1 else total * (1.0 / len(values))
        found.append(means)
    return found


def nearest(held: Mapping[str, Any], device: str) -> Any:
    """Returns the tensor on `device`, or the first one if none is there.

    Args:
      held: equal tensors, or equal lists of tensors, of any shape, by device.
      device: the device that needs the tensor.
    """
    return held.get(device, next(iter(held.values())))


def _sum_on(device: str, values: Sequence[tf.Tensor]) -> tf.Tensor:
    with tf.device(device):
        return tf.identity(values[0]) if len(values) == 1 else tf.add_n(values)


def all_reduce(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Sums one tensor per GPU on every GPU, by one NCCL all-reduce.

    Args:
      values: one tensor per GPU, float32, float16 or float64, all of the same shape.

    Returns:
      The sum on each of these GPUs, tensors of the same shape.
    """
    # All ops of one all-reduce share a name that no other op of this graph has. (TensorFlow adds
    # the number of the step, so other graphs may use the same name.)
    name = tf.get_default_graph().unique_name("all_reduce")
    reduced = []
    for value in values:
        with tf.device(value.device):
            total = tf.raw_ops.NcclAllReduce(
                input=value, reduction="sum", num_devices=len(values), shared_name=name
            )
        reduced.append(total)
    return reduced
