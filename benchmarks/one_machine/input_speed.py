"""Measures the training input alone: images/s of its one thread, and the memory that it takes.

    python -m benchmarks input --recipe fast --data-dir data
    python -m benchmarks input --train-batch-size=128 --data-dir data

takes the flags of cifar10_main.py and reads batches as training does, without training. It prints
one JSON line: images/s (median, lowest and highest of five windows of a second each), the number of
cores kept busy, the size of the split in memory in bytes, the peak growth of the process in bytes
(reading the files included), and the machine.
"""

import json
import pathlib
import re
import statistics
import time
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from benchmarks import arguments
from benchmarks.table_text import machine_text
from cifar10 import schema
from cifar10.input.records import open_records
from cifar10.run import environment, job

_WINDOWS, _WINDOW_SECS = 5, 1.0


def main(argv: Sequence[str]) -> None:
    """Reads batches for some seconds and prints the JSON line."""
    tf.logging.set_verbosity(tf.logging.FATAL)
    config = arguments.parse_training_flags("input", __doc__, argv)
    records = open_records(config.data_dir)
    with tf.Graph().as_default():
        made = job.make_job(config, records)
        batches = tf.data.make_initializable_iterator(job.training_input(made))
        images, labels = batches.get_next()
        next_batch = tf.group(images, labels)
        with tf.Session(config=made.plan.session_config) as session:
            session.run(tf.global_variables_initializer())
            pathlib.Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
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
    """Reads batches for `_WINDOW_SECS` seconds and returns images/s."""
    start, count = time.perf_counter(), 0
    while time.perf_counter() < start + _WINDOW_SECS:
        session.run(next_batch)
        count += batch_size
    return count / (time.perf_counter() - start)


def _memory_bytes(name: str) -> int:
    """Returns a field of /proc/self/status: VmRSS, memory now, or VmHWM, its peak."""
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.findall(rf"{name}:\s+(\d+) kB", status)[0])
