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
from typing import Optional

from launch.backends.local.backend import TRANSPORT as LOCAL
from launch.backends.registry import KINDS
from launch.backends.slurm import commands
from launch.backends.tool_errors import last_line, meaning
from launch.cluster.cluster_file import read_cluster
from launch.cluster.model import Cluster, Host
from launch.cluster.tasks import Job, make_job
from launch.connect.transport import Transport
from launch.errors import HostError, LaunchError
from launch.record import events
from launch.record.outcome import Cause, Outcome, end_record
from launch.record.output import writer
from launch.record.run_folder import RunFolder, state_dir
from launch.screen.display import Display
from launch.supervise.run import passed_values, run_with_agents

_NEAR_ITS_END = signal.SIGUSR1  # Slurm sends it some time before the job's time limit
_REQUEUE_SECS = 60.0


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
        job = make_job(replace(cluster, environment=tuple(values.items())), words[split + 1 :])
        folder = folder or RunFolder.create(state_dir(), job)
        log = writer(folder.output_log) if options.run else None
        outcome = _run(job, folder, Display(log, live=False))
        outcome, can_go_on = explained_by_slurm(outcome, bool(near_its_end))
        if can_go_on:
            _requeue(folder)
    except LaunchError as error:
        outcome = Outcome(error.exit_code, str(error), cause=Cause.LAUNCHER)
    if folder is not None:
        folder.write_end(outcome)  # which the launcher reads
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


def _run(job: Job, folder: RunFolder, display: Display) -> Outcome:
    """Runs the job; srun starts the agents, as steps with all the job's cores of their nodes."""
    counts = cores_per_node(os.environ["SLURM_JOB_CPUS_PER_NODE"])
    cores = {host.name: count for host, count in zip(job.cluster.hosts, counts)}

    def command(host: Host, command: Sequence[str], _: str) -> list[str]:
        step = ["--nodes=1", "--ntasks=1", f"--nodelist={host.name}", "--overlap"]
        return ["srun", *step, f"--cpus-per-task={cores[host.name]}", *command]

    transport = Transport(command, explain_srun, LOCAL.log_path, keeps_logs=True)
    try:
        return run_with_agents(job, folder, transport, display)
    finally:
        display.close()


def explain_srun(host: Host, code: int, errors: str) -> str:
    """Returns why a step of srun ended, and the way out."""
    known = meaning("srun", errors, python=host.agent_python)
    return known or f"{last_line(errors, 'its step ended')} (srun exit code {code})"


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
    if near_its_end and not state.is_preempted:
        words = (
            "stopped in time to save before Slurm's time limit; `time:` under `slurm:` raises it"
        )
        outcome = replace(outcome, exit_code=124, reason=words, cause=Cause.TIME_LIMIT)
        return outcome, state.may_requeue
    cause, words = commands.ENDS["PREEMPTED" if state.is_preempted else "CANCELLED"]
    explained = replace(outcome, reason=f"{outcome.reason}: {words}", cause=cause)
    return explained, state.is_preempted and state.may_requeue


def _requeue(folder: RunFolder) -> None:
    """Returns the job to the queue, which ends this process, too."""
    print("requeued; training will resume from the last checkpoint", flush=True)
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
