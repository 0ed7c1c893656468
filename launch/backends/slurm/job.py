"""`python -m launch.backends.slurm.job`: runs a job's tasks on the nodes that Slurm has given it.

The batch script runs this on the first node, with the description of the cluster on standard input.
The agents and the supervisor are the same as those of the other backends, but srun starts the
agents.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Optional

from launch.backends.registry import BACKENDS
from launch.backends.slurm import scheduler
from launch.cluster.cluster_file import read_cluster
from launch.cluster.host_list import expand
from launch.cluster.model import Cluster, Host
from launch.cluster.tasks import make_job
from launch.connect.link import Transport
from launch.connect.tools import PYTHON, last_line, meaning
from launch.errors import HostError, LaunchError
from launch.record.output import writer
from launch.record.result import ExitReason, Result, end_record
from launch.record.run_folder import RunFolder, state_dir
from launch.screen.display import Display
from launch.supervise.run import allowed_variables, run_with_agents

_NEAR_ITS_END = signal.SIGUSR1  # Slurm sends it some time before the job's time limit
_REQUEUE_SECS = 60.0
_MOST_TIMEOUTS = 3  # in a row without a newer checkpoint


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the job that standard input describes; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m launch.backends.slurm.job", allow_abbrev=False)
    parser.add_argument("--run", metavar="DIR", help="the run's folder; by default a new one")
    parser.add_argument("--environment", metavar="A,B", default="", help="variables for all tasks")
    parser.add_argument("arguments", nargs="*", help="the training's, after `--`")
    options = parser.parse_args(argv)
    warnings: list[int] = []

    def note(signum: int, _: Optional[FrameType]) -> None:
        warnings.append(signum)
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(_NEAR_ITS_END, note)
    folder = RunFolder(Path(options.run)) if options.run else None
    try:
        if folder is not None:
            with contextlib.suppress(OSError):
                folder.reserve_end()  # an earlier start of this job may have ended
        described = read_cluster("/dev/stdin", BACKENDS)
        cluster = _on_its_nodes(BACKENDS["slurm"].arranged(described))
        values = allowed_variables([name for name in options.environment.split(",") if name])
        job = make_job(replace(cluster, environment=tuple(values.items())), options.arguments)
        folder = folder or RunFolder.create(state_dir(), job)
        display = Display(writer(folder.output_log) if options.run else None, live=False)
        result = run_with_agents(job, folder, _transport(job.cluster), display)
        is_late = bool(warnings) and result.exit_code == 128 + signal.SIGTERM
        if is_late or result.cause is ExitReason.PLATFORM:
            shown = _shown()
            is_preempted = "PreemptTime" in shown
            if is_late and is_preempted:
                why = "stopped in time to save before another job takes the nodes"
                result = replace(result, reason=why, cause=ExitReason.PREEMPTED)
            elif is_late:
                why = "stopped in time to save before Slurm's time limit; raise `time:`"
                result = replace(result, exit_code=124, reason=why, cause=ExitReason.TIME_LIMIT)
            if shown.get("Requeue") == "1" and (is_late or is_preempted):
                # Each start of a script that was submitted by hand makes a folder of its own.
                by_hand = folder.path.with_name(f"slurm-{os.environ['SLURM_JOB_ID']}.timeouts")
                counted = folder.path / "timeouts" if options.run else by_hand
                if is_preempted or _may_go_on(counted, result):
                    _requeue(folder)
                else:
                    why = f"{_MOST_TIMEOUTS} time limits without a newer checkpoint; raise `time:`"
                    result = replace(result, reason=why)
    except LaunchError as error:
        result = Result(error.exit_code, str(error), cause=ExitReason.LAUNCHER)
    if folder is not None:
        folder.write_end(result)  # which the launcher reads
    if not options.run:  # otherwise the launcher that submitted the job prints these lines
        print(*result.details, result.reason, sep="\n")
    return result.exit_code


def cores_per_node(words: str) -> list[int]:
    """Returns the cores of each node from SLURM_JOB_CPUS_PER_NODE: `8(x2),4` -> [8, 8, 4]."""
    pairs = re.findall(r"(\d+)(?:\(x(\d+)\))?", words)
    return [int(cores) for cores, times in pairs for _ in range(int(times or 1))]


def _on_its_nodes(cluster: Cluster) -> Cluster:
    """Returns the cluster with the nodes of this allocation as its hosts, in Slurm's order.

    Raises:
      LaunchError: this is no allocation, or it has more or fewer nodes than the description.
      HostError: Slurm does not answer.
    """
    if not os.environ.get("SLURM_JOB_NODELIST"):
        raise LaunchError("this is no job of Slurm; submit the script: sbatch SCRIPT")
    nodes = ",".join(_of_parts("SLURM_JOB_NODELIST"))
    names = expand(nodes)
    if len(names) != len(cluster.hosts):
        raise LaunchError(
            f"the job has {len(names)} nodes, but its description {len(cluster.hosts)}; "
            "change `nodes:` rather than sbatch's --nodes"
        )
    # Some clusters have no scontrol on compute nodes; there a node's address is its name.
    words = ("scontrol", "--oneliner", "show", "node", nodes)
    shown = scheduler.ask(*words).stdout.splitlines() if shutil.which("scontrol") else []
    known = {found.get("NodeName"): found.get("NodeAddr") for found in map(scheduler.fields, shown)}
    hosts = [
        replace(host, name=name, address=known.get(name) or name)
        for host, name in zip(cluster.hosts, names)
    ]
    return replace(cluster, hosts=tuple(hosts))


def _of_parts(variable: str) -> list[str]:
    """Returns a variable of the job, or those of the parts of a heterogeneous one."""
    parts = range(int(os.environ.get("SLURM_HET_SIZE", 0)))
    names = [f"{variable}_HET_GROUP_{part}" for part in parts] or [variable]
    return [os.environ[name] for name in names]


def _transport(cluster: Cluster) -> Transport:
    """Returns the way to the nodes: srun starts agents, as steps with all the job's cores there."""
    places = [
        (part, cores)
        for part, words in enumerate(_of_parts("SLURM_JOB_CPUS_PER_NODE"))
        for cores in cores_per_node(words)
    ]
    of_host = {host.name: place for host, place in zip(cluster.hosts, places)}

    def command(host: Host, command: Sequence[str], *_: object) -> list[str]:
        part, cores = of_host[host.name]
        step = ["--nodes=1", "--ntasks=1", f"--nodelist={host.name}", "--overlap"]
        step += [f"--het-group={part}"] if places[-1][0] else []
        return ["srun", *step, f"--cpus-per-task={cores}", *command]

    return Transport(command, explain_srun)


def explain_srun(host: Host, code: int, errors: str) -> str:
    """Returns why a step of srun ended, with a hint what to do."""
    known = meaning(PYTHON, errors, python=host.agent_python)
    return known or f"{last_line(errors, 'its step ended')} (srun exit code {code})"


def _shown() -> dict[str, str]:
    """Returns what Slurm says of this job; {} if it does not answer."""
    try:
        return scheduler.show(os.environ["SLURM_JOB_ID"])
    except HostError as error:
        print(error)
        return {}


def _may_go_on(path: Path, result: Result) -> bool:
    """Counts time limits without a newer checkpoint, which would come again and again.

    Args:
      path: the file with the count and the last checkpoint, for all starts of this job.
      result: how this start of the job ended; its details name the checkpoint that was saved.
    """
    known, count = "", 0
    with contextlib.suppress(OSError, ValueError):
        known, count = json.loads(path.read_text())
    saved = next((line for line in result.details if line.startswith("saved ")), known)
    count = count + 1 if saved == known else 1
    path.write_text(json.dumps([saved, count]))
    return count < _MOST_TIMEOUTS


def _requeue(folder: RunFolder) -> None:
    """Returns a preempted or late job to the queue; this process ends with it."""
    print("requeued; training will resume from the last checkpoint", flush=True)
    folder.write_status({**folder.status(), **end_record(None)})
    try:
        scheduler.ask("scontrol", "requeue", os.environ["SLURM_JOB_ID"])
    except HostError as error:  # the requeue may also have ended scontrol before it answered
        print(error)
    time.sleep(_REQUEUE_SECS)


if __name__ == "__main__":
    sys.exit(main())
