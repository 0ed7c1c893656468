import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.clusters import tax
from benchmarks.errors import BenchmarkError
from testbeds.processes import cluster

# A task that computes between its progress lines, in a thread of its own each time; a ps sleeps.
TASK = """
import json, os, threading, time

def compute():
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass

if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "ps":
    time.sleep(3600)
for step in range(10, 10 * LINES + 1, 10):
    print(f"step {step} / {10 * LINES}", flush=True)
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    time.sleep(0.2)
"""


def marks_of_a_job(folder: Path, lines: int) -> list[tax.CpuMark]:
    program = folder / "task.py"
    program.write_text(TASK.replace("LINES", str(lines)))
    with cluster(folder / "job", program=program, num_workers=0) as tasks:
        tasks.start()
        return tax.watch(tasks)


def test_the_cpu_time_of_a_step_is_each_task_s_own_between_the_first_and_the_next_to_last_line(
    tmp_path: Path,
) -> None:
    marks = marks_of_a_job(tmp_path, lines=4)
    assert [one.step for one in marks] == [10, 20, 30]
    spent = tax.cpu_ms_between(marks[0], marks[-1])
    assert spent["master/0"] == pytest.approx(30, abs=10)  # 0.3 s in ten steps
    assert spent["ps/0"] == pytest.approx(0, abs=3)


def test_a_run_that_is_too_short_to_measure_says_so(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="use more --steps"):
        marks_of_a_job(tmp_path, lines=2)


def test_the_cpu_time_of_a_step_is_in_milliseconds() -> None:
    first = tax.CpuMark(20, {"master/0": 1.0, "ps/0": 0.5})
    last = tax.CpuMark(120, {"master/0": 3.0, "ps/0": 0.6})
    spent = tax.cpu_ms_between(first, last)
    assert spent == {"master/0": pytest.approx(20.0), "ps/0": pytest.approx(1.0)}


def test_pinning_needs_two_cores() -> None:
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from benchmarks.clusters.tax import measure_tax\n"
        "measure_tax([], [], 1, pinned=True)"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path.cwd(), env=os.environ)
    assert done.returncode == 1
    assert "--pinned needs two cores" in done.stderr
