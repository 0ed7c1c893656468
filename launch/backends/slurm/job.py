"""`python -m launch.slurm_job`: runs a job's tasks on the nodes that Slurm has given it.

The batch script runs this on the first node, with the description of the cluster on standard input.
The agents and the supervisor are the same as those of the other backends, but srun starts the
agents.
"""

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Optional, TextIO

from launch.backends.local.backend import TRANSPORT as LOCAL
from launch.backends.registry import KINDS
from launch.backends.slurm import commands
from launch.backends.slurm.output import ENOUGH
from launch.backends.tool_errors import last_line, meaning
from launch.cluster.cluster_file import read_cluster
from launch.cluster.model import Cluster, Host
from launch.cluster.tasks import Job, make_job
from launch.connect.transport import Transport
from launch.errors import HostError, LaunchError
from launch.record import events
from launch.record.outcome import Cause, Outcome, end_record
from launch.record.run_folder import RunFolder, state_dir
from launch.screen.display import Display
from launch.supervise.run import passed_values, run_with_agents

_NEAR_ITS_END = signal.SIGUSR1  # Slurm sends it some time before the job's time limit
_REQUEUE_SECS = 60.0
_SHOWN_BYTES = 64 << 20  # as much as a log has; nobody rotates the job's own output


class JobDisplay(Display):
    """Shows the job in its own output, which would grow without bound: only the first task lines.

    Its reader shows the table and the start.

    Args:
      logs: the folder with the logs of the tasks, which have all lines.
      stream: the stream to write to; by default standard output.
    """

    def __init__(self, logs: Path, stream: Optional[TextIO] = None) -> None:
        super().__init__(stream, live=False, mentions_start=False)
        self._logs, self._num_bytes = logs, 0

    def task_line(self, task: str, host: str, line: str) -> None:
        """Shows a line of a task's output, unless there were too many before."""
        if self._num_bytes >= _SHOWN_BYTES:
            return
        super().task_line(task, host, line)
        self._num_bytes += len(line.encode(errors="replace"))
        if self._num_bytes >= _SHOWN_BYTES:
            self.note(f"{ENOUGH}{self._logs} has all of them]")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the job that standard input describes; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--")
    parser = argparse.ArgumentParser(prog="python -m launch.slurm_job", allow_abbrev=False)
    parser.add_argument("--run", metavar="DIR", help="the run's folder; by default a new one")
    parser.add_argument("--environment", metavar="A,B", default="", help="variables for all tasks")
    options = parser.parse_args(words[:split])
    near_its_end: list[int] = []

    def note(signum: int, _: Optional[FrameType]) -> None:
        near_its_end.append(signum)
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(_NEAR_ITS_END, note)
    folder = RunFolder(Path(options.run)) if options.run else None
    try:
        cluster = _on_its_nodes(read_cluster("/dev/stdin", KINDS))
        values = passed_values([name for name in options.environment.split(",") if name])
        cluster = replace(cluster, environment=tuple(values.items()))
        job = make_job(cluster, words[split + 1 :])
        folder = folder or RunFolder.create(state_dir(), job)
        outcome = _run(job, folder)
    except LaunchError as error:
        outcome = Outcome(error.exit_code, str(error), cause=Cause.LAUNCHER)
    outcome, can_go_on = explained_by_slurm(outcome, bool(near_its_end))
    if can_go_on:
        _requeue(folder)
    if folder is not None:
        _keep(folder, outcome)
    if not options.run:  # otherwise the launcher that submitted the job prints these lines
        for line in (*outcome.details, outcome.reason):
            print(line)
    return outcome.exit_code


def cores_per_node(words: str) -> list[int]:
    """Returns the cores of each node from SLURM_JOB_CPUS_PER_NODE: `8(x2),4` -> [8, 8, 4]."""
    pairs = re.findall(r"(\d+)(?:\(x(\d+)\))?", words)
    return [int(cores) for cores, times in pairs for _ in range(int(times or 1))]


def _on_its_nodes(cluster: Cluster) -> Cluster:
    """Returns the cluster with the nodes of this allocation as its hosts, in Slurm's order.

    Raises:
      LaunchError: the allocation has more or fewer nodes than the description.
    """
    found = commands.addresses()
    if len(found) != len(cluster.hosts):
        raise LaunchError(
            f"the job has {len(found)} nodes, but its description {len(cluster.hosts)}; "
            "change `nodes:` rather than sbatch's --nodes"
        )
    hosts = [
        replace(host, name=name, address=address)
        for host, (name, address) in zip(cluster.hosts, found)
    ]
    return replace(cluster, hosts=tuple(hosts))


def _run(job: Job, folder: RunFolder) -> Outcome:
    display = JobDisplay(folder.path / "logs")
    try:
        return run_with_agents(job, folder, _transport(job), display)
    finally:
        display.close()


def _transport(job: Job) -> Transport:
    """Returns a transport that starts each agent as an srun step with all the job's cores there."""
    counts = cores_per_node(os.environ["SLURM_JOB_CPUS_PER_NODE"])
    cores = {host.name: count for host, count in zip(job.cluster.hosts, counts)}

    def command(host: Host, command: Sequence[str], _: str) -> list[str]:
        step = ["--nodes=1", "--ntasks=1", f"--nodelist={host.name}", "--overlap"]
        return ["srun", *step, f"--cpus-per-task={cores[host.name]}", *command]

    return Transport(command, _explain, LOCAL.log_path, keeps_logs=True)


def _explain(host: Host, code: int, errors: str) -> str:
    last = last_line(errors, "its step ended")
    known = meaning("srun", errors, python=host.agent_python)
    return known or f"{last} (srun exit code {code})"


def explained_by_slurm(outcome: Outcome, near_its_end: bool) -> tuple[Outcome, bool]:
    """Asks Slurm why the job ends, unless the outcome already has another cause.

    Args:
      outcome: how the job ended, as the supervisor knows it.
      near_its_end: whether Slurm sent its warning before the time limit.

    Returns:
      The outcome with Slurm's reason, and whether the job may return to the queue.
    """
    near_its_end = near_its_end and outcome.exit_code == 128 + signal.SIGTERM
    if not near_its_end and outcome.cause is not Cause.PLATFORM:
        return outcome, False
    try:
        state = commands.show(os.environ["SLURM_JOB_ID"])
    except HostError as error:
        return replace(outcome, reason=f"{outcome.reason}; {error}"), False
    if state.is_preempted:
        cause, words = commands.ENDS["PREEMPTED"]
        words = f"{outcome.reason}: {words}"
        return replace(outcome, reason=words, cause=cause), state.may_requeue
    if near_its_end:
        words = (
            "stopped in time to save before Slurm's time limit; `time:` under `slurm:` raises it"
        )
        outcome = replace(outcome, exit_code=124, reason=words, cause=Cause.TIME_LIMIT)
        return outcome, state.may_requeue
    cause, words = commands.ENDS["CANCELLED"]
    return replace(outcome, reason=f"{outcome.reason}: {words}", cause=cause), False


def _requeue(folder: Optional[RunFolder]) -> None:
    """Returns the job to the queue, which ends this process, too."""
    print("requeued; training will resume from the last checkpoint", flush=True)
    if folder is not None:
        folder.write_status({**folder.status(), **end_record(None)})
        events.add(folder, [events.event("restart", "requeued")])
    refusal: Optional[LaunchError] = None
    try:
        commands.requeue(os.environ["SLURM_JOB_ID"])
    except LaunchError as error:  # the requeue may also have ended scontrol before it answered
        refusal = error
    time.sleep(_REQUEUE_SECS)
    if refusal is not None:
        print(refusal)


def _keep(folder: RunFolder, outcome: Outcome) -> None:
    """Writes the outcome into the status file, which the launcher reads."""
    # A job that could not be started has no list of tasks yet.
    status = {"tasks": [], **folder.status(), "time": time.time(), **end_record(outcome)}
    folder.write_status({**status, "details": outcome.details})
