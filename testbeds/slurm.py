"""A real Slurm on this machine: one controller, and nodes `m1` to `mN` on loopback addresses.

The nodes share this machine's files, ports and process list, in which the tests look for leftovers.
Needs root, and Debian's slurm-wlm and munge. All its files are in one folder, its daemons listen on
free ports, and its processes are ended by their ids.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Optional

from testbeds.errors import TestbedError
from testbeds.ports import free_ports
from testbeds.process_list import all_commands, environment_of

_COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch")
_SBIN = "/usr/sbin:/sbin"  # not on the PATH of every user
_START_SECS = 30.0
_END_SECS = 20.0

_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
DefMemPerCPU=100
PropagateResourceLimits=NONE
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SlurmdTimeout=5
KillWait=10
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=main Nodes=ALL Default=YES State=UP PriorityTier=2 PreemptMode=OFF
PartitionName=spare Nodes=ALL State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
"""


def why_not() -> Optional[str]:
    """Returns why this machine cannot run Slurm; None if it can."""
    if os.geteuid() != 0:
        return "a Slurm of its own needs root"
    missing = [name for name in _COMMANDS if shutil.which(name, path=_path()) is None]
    return f"no {', '.join(missing)}; see testbeds/install_packages.sh" if missing else None


class Slurm:
    """A controller and its nodes, as a context manager that starts and removes them.

    Args:
      count: number of nodes, of `CORES` cores each.

    Raises:
      TestbedError: this machine cannot run Slurm, or it does not start in time.

    Attributes:
      names: names of the nodes.
      env: environment variables with which a command uses this Slurm.
    """

    CORES = 8

    def __init__(self, count: int = 3) -> None:
        reason = why_not()
        if reason:
            raise TestbedError(reason)
        # Short, since the path of a socket is limited.
        self._folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.names = [f"m{i + 1}" for i in range(count)]
        self.env = {"SLURM_CONF": str(self._folder / "slurm.conf"), "PATH": _path()}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Slurm":
        self._write_conf()
        try:
            self._start_munged()
            self._start("slurmctld", "slurmctld", "-D", "-c")
            for name in self.names:
                self.start_node(name)
            self._wait(self._is_idle)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(_END_SECS)
            daemon.kill()
            daemon.wait()
        for pid in self.processes():
            _kill(pid)
        shutil.rmtree(self._folder)

    def run(self, *words: str) -> str:
        """Runs a Slurm command and returns its output, stripped.

        Raises:
          subprocess.CalledProcessError: the command failed.
        """
        done = subprocess.run(
            words, env={**os.environ, **self.env}, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def jobs(self) -> list[str]:
        """Returns the jobs in the queue, each as `ID NAME STATE`."""
        return self.run("squeue", "--noheader", "--format=%i %j %T").splitlines()

    def end_jobs(self) -> None:
        """Cancels all jobs, and waits until the queue is empty and all nodes are idle."""
        self.run("scancel", "--user=root")
        self._wait(lambda: not self.jobs())
        self._wait(self._is_idle)

    def processes(self) -> dict[int, str]:
        """Returns the processes of this Slurm's jobs and clients: pid -> command line.

        These are all processes with this Slurm in their environment, except its daemons.
        """
        mark = f"SLURM_CONF={self.env['SLURM_CONF']}"
        daemons = {daemon.pid for daemon in self._daemons.values()} | {os.getpid()}
        found = {
            pid: words
            for pid, words in all_commands().items()
            if pid not in daemons and mark in environment_of(pid)
        }
        # The controller has a child for scripts, which ends with it.
        return {pid: words for pid, words in found.items() if "slurmscriptd" not in words}

    def start_node(self, name: str) -> None:
        """Starts a node's slurmd, as when the node boots."""
        self._start(name, "slurmd", "-D", "-N", name, SLURMD_NODENAME=name)

    def kill_node(self, name: str) -> None:
        """Kills every process of a node at once, like a power cut."""
        daemon = self._daemons[name]
        daemon.kill()
        for pid in self.processes():
            if f"SLURMD_NODENAME={name}" in environment_of(pid):
                _kill(pid)
        daemon.wait()

    def _is_idle(self) -> bool:
        idle = self.run("sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%D")
        return idle == str(len(self.names))

    def _start(self, name: str, *command: str, **environment: str) -> None:
        with (self._folder / f"{name}.out").open("wb") as output:
            self._daemons[name] = subprocess.Popen(
                command,
                env={**os.environ, **self.env, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _start_munged(self) -> None:
        folder = self._folder / "munge"
        folder.mkdir(mode=0o755)
        (folder / "key").touch(mode=0o600)
        (folder / "key").write_bytes(secrets.token_bytes(1024))
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log"}
        files["seed-file"] = "seed"
        words = [f"--{option}={folder / name}" for option, name in files.items()]
        self._start("munged", "munged", "--foreground", "--force", *words)
        self._wait((folder / "socket").exists)

    def _write_conf(self) -> None:
        host = socket.gethostname().partition(".")[0]
        port, *ports = free_ports(1 + len(self.names))
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.{i + 1} Port={ports[i]} "
            f"CPUs={self.CORES} RealMemory=2000"
            for i, name in enumerate(self.names)
        )
        for name in ("state", *self.names):
            (self._folder / name).mkdir()
        text = _CONF.format(folder=self._folder, host=host, port=port, nodes=nodes)
        Path(self.env["SLURM_CONF"]).write_text(text)

    def _wait(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + _START_SECS
        while True:
            with contextlib.suppress(subprocess.CalledProcessError):
                if condition():
                    return
            if time.monotonic() > deadline:
                logs = [path.read_text()[-1000:] for path in self._folder.glob("*.log")]
                raise TestbedError("\n".join([f"Slurm: not within {_START_SECS:g} s", *logs]))
            time.sleep(0.05)


def _path() -> str:
    return f"{os.environ['PATH']}:{_SBIN}"


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
