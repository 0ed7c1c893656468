"""A cluster of many trainers: what each task takes of its machine does not grow with time."""

import os
import pathlib
import resource
import signal
import time

import pytest

from testbeds.processes import ClusterOfProcesses, cluster
from tests.cifar10 import program

pytestmark = pytest.mark.system

TRAINERS, SERVERS = 16, 2
DESCRIPTORS = 1024
WATCHED_SECS = 20.0
# A task may open a few files meanwhile, such as those of a checkpoint. One connection a second that
# stays open would be as many descriptors as seconds, for each trainer.
MAY_VARY = 10


def open_descriptors(tasks: ClusterOfProcesses) -> dict[str, int]:
    return {
        label: len(os.listdir(f"/proc/{process.pid}/fd"))
        for label, process in tasks.processes.items()
    }


def test_sixteen_trainers_and_two_ps_keep_few_descriptors_open(tmp_path: pathlib.Path) -> None:
    data = program.make_records(tmp_path / "data", 400)
    arguments = [f"--data-dir={data}", "--output-dir=output", "--model=mlp", "--hidden-units=8"]
    arguments += ["--train-batch-size=20", "--train-steps=1000000", "--checkpoint-steps=1000000"]
    shape = {"num_ps": SERVERS, "num_workers": TRAINERS - 1}
    with cluster(tmp_path, *arguments, "--log-steps=100", **shape) as tasks:
        tasks.start()
        for process in tasks.processes.values():
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        for label in tasks.labels:
            if not label.startswith("ps/"):
                tasks.wait_for_output(label, "  step ", timeout_secs=300)
        first = open_descriptors(tasks)
        time.sleep(WATCHED_SECS)
        assert all(task.poll() is None for task in tasks.processes.values()), tasks.all_output()
        last = open_descriptors(tasks)
        for label in tasks.labels:
            tasks.kill(label, signal.SIGTERM)
        assert {tasks.exit_code(label, 120) for label in tasks.labels} == {143}
    assert max(last.values()) < DESCRIPTORS / 4
    grown = {label: last[label] - first[label] for label in first}
    assert max(grown.values()) <= MAY_VARY, grown
