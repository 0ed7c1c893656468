"""`python -m tests.faults.soak`: one long job with many kills, whose processes must not grow.

Sixteen trainers and two parameter servers train a tiny model under `python -m launch up`. In thirty
minutes the job makes 200 checkpoints with a validation each, and 20 tasks are killed.
"""

import argparse
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Optional

from testbeds.errors import TestbedError
from tests.cifar10.program import make_records
from tests.faults import checks
from tests.faults.progress import lost_in
from tests.faults.runs import STOP, CellError, Job, Shape, Size
from tests.faults.samples import Series, Settled
from tests.launch.launcher import ROOT, agent_pids

WORKERS, SERVERS = 15, 2
FULL_MINUTES, FULL_CHECKPOINTS, FULL_KILLS = 30, 200, 20
DESCRIPTORS = 1024
# A process grows if a line through its samples rises faster than this a minute, and by more than
# this in all: a checkpoint that is being written has descriptors and memory, too, and for a worker
# that is started again a master has four descriptors more.
MOST_MEMORY, MOST_DESCRIPTORS = 4.0, 1.0
MAY_VARY_MEMORY, MAY_VARY_DESCRIPTORS = 16.0, 8.0
_SHORTEST_SECS = 60.0
_SAMPLE_SECS = 1.0
_LOG_STEPS = 20


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the soak; returns 1 if the job failed or a process grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES, help="size: about how long")
    parser.add_argument("--seed", type=int, default=1, help="which tasks are killed, and when")
    parser.add_argument("--checkpoint-steps", type=int, default=100, help="steps per checkpoint")
    parser.add_argument("--out", type=Path, default=ROOT / "faults", help="folder of the tables")
    options = parser.parse_args(argv)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: STOP.set())
    # The tasks inherit it, and cannot raise it.
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    share = options.minutes / FULL_MINUTES
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        soak = Soak(Path(name), options.minutes, options.checkpoint_steps, options.seed)
        wrong = soak.run(round(FULL_CHECKPOINTS * share), round(FULL_KILLS * share))
    wrong += [line for one in soak.settled() for line in grown(one)]
    report = soak.report(wrong)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "soak.json").write_text(json.dumps(report, indent=2) + "\n")
    text = as_markdown(report, soak.settled())
    (options.out / "soak.md").write_text(text)
    print(text)
    return 1 if wrong else 0


def grown(one: Settled) -> list[str]:
    """Returns what of a process grows faster than the limits."""
    wrong = []
    memory, descriptors = one.memory_slope, one.descriptors_slope
    minutes = one.secs / 60
    if memory > MOST_MEMORY and memory * minutes > MAY_VARY_MEMORY:
        wrong.append(f"{one.name}: memory grows by {memory:.2f} MiB a minute")
    if descriptors > MOST_DESCRIPTORS and descriptors * minutes > MAY_VARY_DESCRIPTORS:
        wrong.append(f"{one.name}: descriptors grow by {descriptors:.2f} a minute")
    return wrong


class ManyTrainers(Job):
    """A job of 16 trainers and 2 parameter servers on this machine."""

    def __init__(self, folder: Path, data: Path, size: Size, checkpoint_steps: int) -> None:
        super().__init__(folder, data, Shape("sync"), size)
        self.restarts = 1000
        self.ports = "free"
        self.train_steps = self.checkpoint_steps = checkpoint_steps

    def roles(self) -> list[str]:
        """Returns the one host's roles."""
        return ["master: 1", f"worker: {WORKERS}", f"ps: {SERVERS}"]

    def arguments(self) -> list[str]:
        """Returns the arguments of training."""
        return [
            f"--data-dir={self.data}",
            f"--output-dir={self.output}",
            "--model=mlp",
            "--hidden-units=8",
            "--train-batch-size=20",
            f"--train-steps={self.train_steps}",
            f"--checkpoint-steps={self.checkpoint_steps}",
            "--keep-checkpoints=3",
            f"--log-steps={_LOG_STEPS}",
            f"--cluster-timeout={self.size.cluster_timeout}",
        ]


class Soak:
    """One soak.

    Args:
      folder: an empty folder.
      minutes: about how long the job takes on two idle cores.
      checkpoint_steps: steps between two checkpoints.
      seed: decides who is killed, and when.
    """

    def __init__(self, folder: Path, minutes: float, checkpoint_steps: int, seed: int) -> None:
        data = make_records(folder / "data", 400)
        size = Size(lease_secs=60, cluster_timeout=300)
        self._job = ManyTrainers(folder / "job", data, size, checkpoint_steps)
        self._random = random.Random(seed)
        self._seed = seed
        self._limit_secs = 60 * minutes * 5 + 600
        self._series: dict[int, Series] = {}
        self._began = time.monotonic()
        self._kills: list[str] = []
        self._log = self._said = ""
        self._code: Optional[int] = None

    def run(self, checkpoints: int, kills: int) -> list[str]:
        """Runs the job to its end; returns what is wrong."""
        job = self._job
        job.train_steps = checkpoints * job.checkpoint_steps
        due = sorted(self._random.uniform(0.1, 0.9) * job.train_steps for _ in range(kills))
        job.start()
        try:
            while job.launcher.poll() is None:
                if STOP.is_set():
                    raise CellError("stopped by a signal")
                if time.monotonic() - self._began > self._limit_secs:
                    raise CellError(f"the job hangs: no end within {self._limit_secs:g} s")
                self._sample()
                if due and job.reached() >= due[0]:
                    due.pop(0)
                    self._kill_one()
                time.sleep(_SAMPLE_SECS)
            self._code = job.launcher.returncode
            wrong = [] if self._code == 0 else [f"exit code {self._code}: {job.said()[-2000:]}"]
            wrong += checks.nothing_left(job, 10)
            if len(self._kills) < kills:
                wrong.append(f"{len(self._kills)} kills, not {kills}")
            return wrong
        except (CellError, TestbedError) as error:
            return [str(error)]
        finally:
            self._log, self._said = job.log(job.lead), job.said()
            job.kill()

    def _pids(self) -> dict[int, str]:
        """Returns the process ids of the launcher, its agent and the tasks, with their names."""
        found = {self._job.launcher.pid: "launcher"}
        for run_id in self._job.run_ids():
            found |= {pid: "agent" for pid in agent_pids(run_id)}
            found |= tasks_of(run_id)
        return found

    def _sample(self) -> None:
        now = time.monotonic() - self._began
        for pid, name in self._pids().items():
            self._series.setdefault(pid, Series(name, pid)).sample(now)

    def _kill_one(self) -> None:
        tasks = {pid: name for pid, name in self._pids().items() if "/" in name}
        if tasks:
            pid = self._random.choice(sorted(tasks, key=lambda one: tasks[one]))
            os.kill(pid, signal.SIGKILL)
            self._kills.append(tasks[pid])

    def settled(self) -> list[Settled]:
        """Returns the processes that ran for long enough to have slopes."""
        found = [one.settled(_SHORTEST_SECS) for one in self._series.values()]
        return sorted((one for one in found if one), key=lambda one: (one.name, one.pid))

    def report(self, wrong: list[str]) -> dict[str, Any]:
        """Returns all figures."""
        return {
            "seed": self._seed,
            "secs": round(time.monotonic() - self._began, 1),
            "exit_code": self._code,
            "kills": self._kills,
            "steps": self._job.train_steps,
            "steps_lost": lost_in(self._said, _LOG_STEPS),
            "checkpoints": self._job.train_steps // self._job.checkpoint_steps,
            "evaluations": len(re.findall("^validation accuracy", self._log, re.M)),
            "processes": [asdict(one) for one in self.settled()],
            "wrong": wrong,
            "samples": [asdict(one) for one in self._series.values()],
        }


def tasks_of(run_id: str) -> dict[int, str]:
    """Returns the training processes of a run: pid -> label."""
    found = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            if b"cifar10_main.py" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                continue
            words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if f"LAUNCH_RUN_ID={run_id}" in words:
            label = next((word[12:] for word in words if word.startswith("LAUNCH_TASK=")), "")
            found[pid] = label
    return found


def as_markdown(report: dict[str, Any], settled: Sequence[Settled]) -> str:
    """Returns the figures as text with a table."""
    lines = [
        f"{report['secs']:.0f} s, exit code {report['exit_code']}, {report['steps']} steps, "
        f"{report['checkpoints']} checkpoints, {report['evaluations']} validations, "
        f"{len(report['kills'])} kills ({', '.join(report['kills'])}), "
        f"{report['steps_lost']} steps trained again.",
        "",
        "| process | watched, s | memory, MiB | MiB a minute | descriptors | a minute |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.name} | {one.secs:.0f} | {one.memory:.0f} | {one.memory_slope:+.2f} "
        f"| {one.descriptors} | {one.descriptors_slope:+.2f} |"
        for one in settled
    ]
    lines += ["", *(f"- wrong: {one}" for one in report["wrong"])]
    return "\n".join(lines).strip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
