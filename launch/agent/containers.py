"""Manages the containers of a run on one host.

This module adds options that depend on the host to `docker run` commands, and removes containers.
A container does not end with the client that started it. Each container therefore carries its
task's marks as labels, so that it can be found and removed even if the client is gone.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from launch.agent import bounded_run, processes
from launch.agent.protocol import Message
from launch.agent.task_process import OWN_CORES, gpus_here, part

DATA, OUTPUT = "/data/data", "/data/output"  # paths inside the container
_ANSWER_SECS = 20.0
_GIVE_UP_SECS = 20.0
_LOOK_SECS = 0.1
_MISSING = "{engine} is not installed; install it, or name another with `docker: {{engine: PATH}}`"

# Exit codes of the engine's client. The container's command may exit with the same codes.
_REASONS = {
    125: "{engine} could not run the container",
    126: "{engine} could not start the image's entry point",
    127: "{engine} did not find the image's entry point, or what is mounted",
}


def mount(source: str, target: str, *, readonly: bool) -> str:
    """Returns the option that mounts a host folder, which must exist (unlike with `--volume`)."""
    return f"--mount=type=bind,source={source},target={target}{',readonly' * readonly}"


def gpu_words(engine: str) -> list[str]:
    """Returns the options that expose all GPUs; CUDA_VISIBLE_DEVICES selects those to use."""
    return ["--device=nvidia.com/gpu=all"] if is_podman(engine) else ["--gpus=all"]


def is_podman(engine: str) -> bool:
    """Returns whether the engine's file name is `podman`."""
    return os.path.basename(engine) == "podman"


@dataclass(frozen=True)
class Removal:
    """What has become of containers that were to be removed.

    Attributes:
      ids: the ids of the removed containers.
      were_running: whether some of them were running.
      error: why they could not be removed, or why that is not known; None if none are left.
    """

    ids: list[str] = field(default_factory=list)
    were_running: bool = False
    error: Optional[str] = None


class Containers:
    """A container engine on this host.

    Args:
      engine: `docker`, `podman`, or a path to one of them.
      mounts: (folder on this host, path in the container, whether it is read-only) tuples; every
        task except a ps gets these mounts.
    """

    def __init__(self, engine: str, mounts: Sequence[tuple[str, str, bool]] = ()) -> None:
        self.engine = engine
        self._mounts = mounts

    def prepare(self, order: Message, marks: dict[str, str]) -> Message:
        """Adds the options that depend on this host to an order to start a task.

        Args:
          order: the launcher's order, whose argv is `ENGINE run ...`.
          marks: the task's marks, which become labels of its container.

        Returns:
          A copy of the order with the complete command.

        Raises:
          OSError: the engine or a folder to mount does not exist.
        """
        if shutil.which(self.engine) is None:
            raise OSError(_MISSING.format(engine=self.engine))
        words = [f"--label={name}={value}" for name, value in marks.items()]
        words += self._user()
        if order["share"] is not None:
            cores = part(sorted(os.sched_getaffinity(0)), order["share"])
            words.append(f"--cpuset-cpus={','.join(map(str, cores))}")
            words.append(f"--env={OWN_CORES}=1")
        if order["gpus"] or (order["gpus"] is None and gpus_here()):
            words += gpu_words(self.engine)
        if not order["last"]:  # a ps reads no records and writes no output
            words += [
                mount(_folder(order["cwd"], source, readonly), target, readonly=readonly)
                for source, target, readonly in self._mounts
            ]
        argv = order["argv"]
        return {**order, "cwd": "/", "argv": [*argv[:2], *words, *argv[2:]], "contained": True}

    def _user(self) -> list[str]:
        """Returns the options that make this user own the files that a container writes."""
        ids = f"--user={os.getuid()}:{os.getgid()}"
        # Rootless podman would map these ids into its own user namespace.
        return ["--userns=keep-id", ids] if is_podman(self.engine) and os.getuid() else [ids]

    def look(self, image: str) -> dict[str, Any]:
        """Returns why the engine does not work (or None) and the image's short id (or None)."""
        error = self.why_not()
        if error is not None:
            return {"engine_error": error, "image": None}
        try:
            found = self._ask("image", "inspect", "--format={{.Id}}", image)[0]
        except OSError:  # there is no such image
            return {"engine_error": None, "image": None}
        return {"engine_error": None, "image": found.removeprefix("sha256:")[:12]}

    def find(self, **marks: str) -> list[str]:
        """Returns the ids of the containers with these marks, running or not.

        Raises:
          OSError: the engine does not answer or fails; the message says why.
        """
        filters = [f"--filter=label={name}={value}" for name, value in marks.items()]
        return self._ask("ps", "--all", "--quiet", "--no-trunc", *filters)

    def why_not(self) -> Optional[str]:
        """Returns why the engine does not work; None if it does."""
        try:
            self._ask("ps", "--quiet")
        except OSError as error:
            return str(error)
        return None

    def try_to_remove(self, settle_secs: float, marks: Mapping[str, str]) -> Removal:
        """Does what `remove` does, but returns an error instead of raising it."""
        try:
            return self.remove(settle_secs, **marks)
        except OSError as error:
            return Removal(error=str(error))

    def remove(self, settle_secs: float, **marks: str) -> Removal:
        """Kills and removes containers until none with these marks is left.

        Args:
          settle_secs: the minimum time in seconds to keep searching, because a container that a
            killed client was creating may appear late.
          **marks: the value of each of the marks RUN, HOST or TASK to search for.

        Raises:
          OSError: the engine does not answer, or cannot remove them.
        """
        removed: set[str] = set()
        were_running = False
        began = time.monotonic()
        while True:
            found = self.find(**marks)
            now = time.monotonic()
            if not found and now >= began + settle_secs:
                processes.end_monitors(removed)
                return Removal(sorted(removed), were_running)
            if found and now > began + _GIVE_UP_SECS:
                raise OSError(f"{self.engine} could not remove {', '.join(found)}")
            if found:
                removed.update(found)
                # Both commands may fail if a container ends at this moment. `podman rm` alone would
                # first ask the container to end and wait.
                killed = self._run("kill", *found)  # succeeds only if they were running
                were_running |= killed is not None and killed.returncode == 0
                self._run("rm", "--force", *found)
            time.sleep(_LOOK_SECS)

    def reason(self, code: int, removal: Optional[Removal] = None) -> str:
        """Explains an exit code of the client; returns '' for a code of the container's command.

        Args:
          code: the exit code, -n for signal n.
          removal: what was found of the container after the client's end.
        """
        if code > 0 and removal is not None and removal.were_running:
            words = f"{self.engine} ended before its container, which was still running: removed"
        elif code in _REASONS:
            words = f"{_REASONS[code].format(engine=self.engine)}; its last lines say why"
        else:
            return ""
        return f"exit code {code}: {words}"

    def _ask(self, *words: str) -> list[str]:
        done = self._run(*words)
        if done is None:
            raise OSError(f"{self.engine} did not answer within {_ANSWER_SECS:g} s")
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise OSError(f"{self.engine} does not work: {lines[-1]}")
        return done.stdout.split()

    def _run(self, *words: str) -> "Optional[subprocess.CompletedProcess[str]]":
        """Runs the engine's client; returns None if it does not end within `_ANSWER_SECS`.

        Raises:
          OSError: there is no such client, or it prints without end.
        """
        try:
            return bounded_run.run([self.engine, *words], _ANSWER_SECS)
        except FileNotFoundError:
            raise OSError(_MISSING.format(engine=self.engine)) from None
        except subprocess.TimeoutExpired:
            return None


def _folder(cwd: str, path: str, readonly: bool) -> str:
    """Returns the absolute path of a folder to mount; creates it unless it is read-only."""
    folder = os.path.join(os.path.expanduser(cwd), os.path.expanduser(path))
    if not readonly:
        os.makedirs(folder, exist_ok=True)
    elif not os.path.isdir(folder):
        raise OSError(f"{folder} does not exist; set docker.data to the folder with the records")
    return folder
