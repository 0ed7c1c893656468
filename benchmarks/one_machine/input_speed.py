"""The training input alone: images/s of its one thread, and the memory that it takes.

    python -m benchmarks input --recipe fast --data-dir data
    python -m benchmarks input --train-batch-size=128 --data-dir data

takes the flags of cifar10_main.py and draws batches as training does, with nothing to train. It
prints one JSON line: images/s (median, lowest and highest of five times a second), the cores that
this kept busy, the bytes of the split that is held in memory, and by how many bytes the process
grew at its peak, reading included; and the machine.
"""

import json
import pathlib
import re
import statistics
import time
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from benchmarks.table_text import machine_text
from cifar10 import schema
from cifar10.config import flags
from cifar10.input.records import open_records
from cifar10.run import environment, job
from cifar10.run.master import train_input

_WINDOWS, _WINDOW_SECS = 5, 1.0


def main(argv: Sequence[str]) -> None:
    """Draws batches for some seconds."""
    tf.logging.set_verbosity(tf.logging.FATAL)
    config = flags.parse(argv)
    records = open_records(config.data_dir)
    with tf.Graph().as_default():
        made = job.make_job(config, records)
        batches = tf.data.make_initializable_iterator(train_input(made))
        images, labels = batches.get_next()
        next_batch = tf.group(images, labels)
        with tf.Session(config=made.plan.session_config) as session:
            session.run(tf.global_variables_initializer())
            pathlib.Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
            before = _memory_bytes("VmRSS")
            session.run(batches.initializer)
            session.run(next_batch)
            start_cpu, start = time.process_time(), time.perf_counter()
            rates = [_rate(session, next_batch, config.train_batch_size) for _ in range(_WINDOWS)]
            secs, cpu_secs = time.perf_counter() - start, time.process_time() - start_cpu
    count = records.counts[schema.TRAIN]
    found = {
        "batch_size": config.train_batch_size,
        "images_per_sec": round(statistics.median(rates)),
        "lowest": round(min(rates)),
        "highest": round(max(rates)),
        "busy_cores": round(cpu_secs / secs, 2),
        "split_bytes": count * (schema.IMAGE_BYTES + tf.int64.size),
        "peak_growth_bytes": _memory_bytes("VmHWM") - before,
        "machine": machine_text(environment.hardware(), environment.versions()),
    }
    print(json.dumps(found))


def _rate(session: Any, next_batch: Any, batch_size: int) -> float:
    """images/s of some time."""
    start, count = time.perf_counter(), 0
    while time.perf_counter() < start + _WINDOW_SECS:
        session.run(next_batch)
        count += batch_size
    return count / (time.perf_counter() - start)


def _memory_bytes(name: str) -> int:
    """VmRSS, what is in memory now, or VmHWM, the most that was; by /proc/self/status."""
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.findall(rf"{name}:\s+(\d+) kB", status)[0])
