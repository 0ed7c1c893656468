"""The towers' gradients, and their mean, where the weights are.

The towers of a machine are summed first, on its CPU or over its GPUs by NCCL. What crosses to other
machines is that one sum, in a part for each piece of the weights.

**Why an all-reduce, and not a reduce and a broadcast.** All gradients of a tower are one flat
vector, so one op an update does. With the weights on the GPUs (`--variable-strategy GPU`), each GPU
updates a piece of them and needs that piece of the sum, so that a reduce to one GPU would have to
send it on from there; after an all-reduce each has its piece already. With the weights on the CPU a
reduce to one GPU would do, with half the traffic. But that is some megabytes between GPUs, and
TensorFlow's `NcclReduce` has no kernel: a graph pass has to find and replace it. `NcclAllReduce` is
an op like others, and the one that its own `MirroredStrategy` is built on.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.optim import optimizers
from cifar10.step.state import TrainingState
from cifar10.step.towers import Tower, machine_of, tower_moments


def tower_gradients(
    losses: Sequence[tf.Tensor],
    copies: Sequence[tf.Tensor],
    scale: Optional[tf.mixed_precision.LossScale] = None,
) -> list[tf.Tensor]:
    """Differentiates each tower's loss by its own copy of the weights.

    One call for all towers: where they share batch statistics, a tower's loss reaches the copies
    of the others too.

    Args:
      losses: G scalars, the mean loss of each tower.
      copies: G copies of the weights, float32 [size].
      scale: by which losses are multiplied and gradients divided, so that fp16 does not lose small
        ones; or None.

    Returns:
      G gradients, float32 [size], each on its tower's device.
    """
    scaled = losses if scale is None else _on_towers(losses, copies, lambda loss: loss * scale())
    gradients = tf.gradients(scaled, copies, colocate_gradients_with_ops=True)
    if any(gradient is None for gradient in gradients):
        raise ValueError("the loss does not depend on the weights")
    if scale is None:
        return gradients
    return _on_towers(gradients, copies, lambda gradient: gradient / scale())


def _on_towers(
    values: Sequence[tf.Tensor],
    copies: Sequence[tf.Tensor],
    function: Callable[[tf.Tensor], tf.Tensor],
) -> list[tf.Tensor]:
    """Applies a function to each tower's value where the tower is."""
    results = []
    for value, copy in zip(values, copies):
        with tf.device(copy.device):
            results.append(function(value))
    return results


def average_gradients(
    gradients: Sequence[tf.Tensor],
    copies: Sequence[tf.Tensor],
    state: TrainingState,
) -> list[tf.Tensor]:
    """Averages the towers' gradients and adds the decay of the weights.

    Args:
      gradients: float32 [size] a tower.
      copies: float32 [size], each tower's copy of the weights.
      state: has the weights.

    Returns:
      float32 [size of the piece] a piece of the weights, on the piece's device.
    """
    params, place = state.params, state.params.place
    machines = mean_by_machine(gradients, place.tower_devices, params.plan.reduction)
    copy_on = {copy.device: copy for copy in reversed(copies)}
    sent = []  # by machine: device -> a part a piece, of the type that crosses the network
    for index, held in enumerate(machines):
        ready = {}
        for device, mean in held.items():
            # The first machine adds the decay, once for all of them.
            decayed = copy_on.get(device, copies[0]) if index == 0 else None
            with tf.device(device):
                whole = optimizers.scale_and_decay(params.config, state.layout, mean, decayed)
                ready[device] = [
                    tf.cast(part, place.transfer_dtype) for part in state.weights.cut(whole)
                ]
        sent.append(ready)
    means = []
    for number, piece in enumerate(state.weights.pieces):
        parts = [nearest(held, piece.device)[number] for held in sent]
        with tf.device(piece.device):
            means.append(tf.add_n([tf.cast(part, tf.float32) for part in parts]))
    return means


def average_moments(parts: Sequence[Tower], state: TrainingState) -> list[tf.Tensor]:
    """Averages what the towers' batch-norm layers saw.

    Args:
      parts: the towers.
      state: has the moving statistics, where the mean is needed.

    Returns:
      One tensor, float32 [2 * channels], see `towers.tower_moments`; none for a model without batch
      normalisation.
    """
    if not state.statistics.pieces:
        return []
    params, device = state.params, state.statistics.pieces[0].device
    moments = [tower_moments(one) for one in parts]
    machines = mean_by_machine(moments, params.place.tower_devices, params.plan.reduction)
    with tf.device(device):
        return [tf.add_n([nearest(held, device) for held in machines])]


def mean_by_machine(
    values: Sequence[tf.Tensor], devices: Sequence[str], how: str = "cpu"
) -> list[dict[str, tf.Tensor]]:
    """Reduces what each tower has to what each machine has: only that crosses the network.

    Args:
      values: one tensor a tower, of one shape.
      devices: of the towers.
      how: `cpu` or `nccl`.

    Returns:
      A dictionary a machine, from device to a tensor of that shape that is there, all the same;
      those of all machines sum up to the mean over all towers.
    """
    machines: dict[str, list[int]] = {}
    for index, device in enumerate(devices):
        machines.setdefault(machine_of(device), []).append(index)
    sum_up = sum_by_nccl if how == "nccl" else sum_on_cpu
    found = []
    for own in machines.values():
        sums = sum_up([values[one] for one in own], [devices[one] for one in own])
        means = {}
        for total in sums:
            with tf.device(total.device):
                mean = total if len(values) == 1 else total * (1.0 / len(values))
            means[mean.device] = mean
        found.append(means)
    return found


def nearest(held: Mapping[str, Any], device: str) -> Any:
    """Returns the tensor on `device`, or the first one if there is none on it."""
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
