"""What TensorFlow's profiler has recorded: the trace as JSON, and the self time of each op.

Touches: the proto XSpace of TensorFlow's profiler.

Why: the public tf.profiler.experimental writes an XSpace, which only TensorBoard's profile plugin
can open, and it is a package of its own. The definition of the proto is a part of TensorFlow.
"""

import collections
import gzip
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

# An op's event is named `name:Type`; other events, such as `ExecutorState::Process`, are not.
_OP = re.compile(r"[^:\s]+:([A-Za-z_]\w*)")
_HOST = "/host:CPU"


class OpTime(NamedTuple):
    """The executions of all ops of a type.

    Attributes:
      type: the type, such as `Conv2D`.
      calls: the number of executions.
      seconds: the self time of all of them, on all threads.
    """

    type: str
    calls: int
    seconds: float


def op_times(path: str) -> list[OpTime]:
    """Returns the time of each type of op on the host's threads, the most expensive first.

    Args:
      path: path of a file `*.xplane.pb`.
    """
    calls: collections.Counter[str] = collections.Counter()
    picoseconds: collections.Counter[str] = collections.Counter()
    for plane in _planes(path):
        if plane.name != _HOST:
            continue
        types = {
            number: match[1]
            for number, entry in plane.event_metadata.items()
            if (match := _OP.fullmatch(entry.name))
        }
        for line in plane.lines:
            events = [
                (event.offset_ps, event.duration_ps, types[event.metadata_id])
                for event in line.events
                if event.metadata_id in types
            ]
            for kind, alone in self_times(events):
                calls[kind] += 1
                picoseconds[kind] += alone
    return [OpTime(kind, calls[kind], time / 1e12) for kind, time in picoseconds.most_common()]


def self_times(events: Iterable[tuple[int, int, str]]) -> Iterator[tuple[str, int]]:
    """Yields (type, duration without the events inside) of a thread's events, in any order.

    Args:
      events: (start, duration, type) of each; an event lies inside another one, or beside it.
    """
    open_ones: list[list[Any]] = []  # [end, self time, type] of events that enclose the next one
    for start, duration, kind in sorted(events, key=lambda one: (one[0], -one[1])):
        while open_ones and open_ones[-1][0] <= start:
            _, alone, done = open_ones.pop()
            yield done, alone
        if open_ones:
            open_ones[-1][1] -= duration
        open_ones.append([start + duration, duration, kind])
    for _, alone, kind in open_ones:
        yield kind, alone


def write_trace(path: str) -> str:
    """Writes the trace as JSON, which Perfetto and chrome://tracing open, beside an XSpace.

    Args:
      path: path of a file `*.xplane.pb`.

    Returns:
      The path of the JSON file, compressed by gzip.
    """
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": list(_trace_events(path))})
    name = path.removesuffix(".xplane.pb") + ".trace.json.gz"
    with tf.io.gfile.GFile(name, "wb") as file:
        file.write(gzip.compress(text.encode()))
    return name


def _trace_events(path: str) -> Iterator[dict[str, Any]]:
    for pid, plane in enumerate(_planes(path), start=1):
        yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": plane.name}}
        for line in plane.lines:
            thread = {"pid": pid, "tid": line.id}
            name = line.display_name or line.name
            yield {"ph": "M", "name": "thread_name", **thread, "args": {"name": name}}
            for event in line.events:
                entry = plane.event_metadata[event.metadata_id]
                yield {
                    "ph": "X",
                    **thread,
                    "name": entry.display_name or entry.name,
                    "ts": line.timestamp_ns / 1e3 + event.offset_ps / 1e6,  # us, as `dur`
                    "dur": event.duration_ps / 1e6,
                    "args": {"long_name": entry.name},
                }


def _planes(path: str) -> Any:
    """Returns the planes of an XSpace, a device each, with a line for each thread."""
    space = xplane_pb2.XSpace()
    with tf.io.gfile.GFile(path, "rb") as file:
        space.ParseFromString(file.read())
    return space.planes
