"""Manages the containers of a run on one host.

This module adds options that depend on the host to `docker run` commands, and removes containers.
A container does not end with the client that started it. Each container therefore carries its
task's labels, so that it can be found and removed even if the client is gone.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Optional

from launch.agent import processes
from launch.agent.protocol import Message
from launch.agent.task_process import OWN_CORES, gpus_here, part

CODE, DATA, OUTPUT = "/data", "/data/data", "/data/output"  # paths inside the container
_ANSWER_SECS = 20.0
_GIVE_UP_SECS = 20.0
_LOOK_SECS = 0.1
_MISSING = "{} is not installed; install it, or name another with `docker: {{engine: PATH}}`"
# The task's process first removes containers of an earlier agent: `$1` selects them. `podman rm`
# alone would ask them to end, and wait.
_CLEARING = """\
ids=$("$0" ps --all --quiet $1) && [ "$ids" ] &&
    { "$0" kill $ids; "$0" rm --force $ids; } >/dev/null 2>&1
shift
exec "$0" "$@"
"""


def mount(source: str, target: str) -> str:
    """Returns the option that mounts a host folder, which must exist (unlike with `--volume`)."""
    return f"--mount=type=bind,source={source},target={target}{',readonly' * (target == DATA)}"


def needs(target: str, script: Optional[str], *, is_ps: bool) -> bool:
    """Returns whether a task needs a mount: a ps reads and writes nothing but its own script."""
    return not is_ps or os.path.join(CODE, script or "").startswith(f"{target}/")


def gpu_words(engine: str) -> list[str]:
    """Returns the options that expose all GPUs; CUDA_VISIBLE_DEVICES selects those to use."""
    return ["--device=nvidia.com/gpu=all"] if is_podman(engine) else ["--gpus=all"]


def is_podman(engine: str) -> bool:
    """Returns whether the engine's file name is `podman`."""
    return os.path.basename(engine) == "podman"


class Containers:
    """A container engine on this host.

    Args:
      engine: `docker`, `podman`, or a path to one of them.
      mounts: (path in the container, folder on this host) pairs; every task except a ps gets these
        mounts, DATA to read only; see `needs`.
    """

    def __init__(self, engine: str, mounts: Sequence[tuple[str, str]] = ()) -> None:
        self.engine = engine
        self._mounts = mounts

    def prepare(self, order: Message, labels: dict[str, str]) -> Message:
        """Adds the options that depend on this host to an order to start a task.

        Args:
          order: the launcher's order, whose argv is `ENGINE run ...`.
          labels: the task's labels, which its container gets, too.

        Returns:
          A copy of the order with the complete command.

        Raises:
          OSError: the engine or a folder to mount is missing: another start would fail, too.
        """
        if shutil.which(self.engine) is None:
            raise OSError(_MISSING.format(self.engine))
        words = [f"--label={name}={value}" for name, value in labels.items()]
        # These ids own the files that a container writes; rootless podman would map them.
        words += ["--userns=keep-id"] if is_podman(self.engine) and os.getuid() else []
        words.append(f"--user={os.getuid()}:{os.getgid()}")
        if order["share"] is not None:
            cores = part(sorted(os.sched_getaffinity(0)), order["share"])
            words.append(f"--cpuset-cpus={','.join(map(str, cores))}")
            words.append(f"--env={OWN_CORES}=1")
        if order["gpus"] or (order["gpus"] is None and gpus_here()):
            words += gpu_words(self.engine)
        words += [
            mount(_folder(order["cwd"], source, target), target)
            for target, source in self._mounts
            if needs(target, order.get("script"), is_ps=order["last"])
        ]
        engine, run, *rest = order["argv"]
        earlier = {name: labels[name] for name in (processes.RUN, processes.TASK)}
        clearing = ["sh", "-c", _CLEARING, engine, " ".join(_filters(earlier))]
        argv = [*clearing, run, *words, *rest]
        return {**order, "cwd": "/", "script": None, "argv": argv, "contained": True}

    def probe(self, image: str) -> dict[str, Any]:
        """Returns why the engine does not work (or None) and the image's short id (or None)."""
        try:
            self._ask("ps", "--quiet")
            done = self._client("image", "inspect", "--format={{.Id}}", image)
        except OSError as error:
            return {"engine_error": str(error), "image": None}
        found = None if done.returncode else done.stdout.strip().removeprefix("sha256:")[:12]
        return {"engine_error": None, "image": found}

    def remove(
        self, labels: dict[str, str], settle_secs: float = 0.0
    ) -> tuple[list[str], Optional[str]]:
        """Kills and removes containers until none with these labels is left.

        Args:
          labels: the value of each of the labels RUN, HOST or TASK to search for.
          settle_secs: the minimum time in seconds to keep searching, because a container that a
            killed client was creating may appear late.

        Returns:
          The ids of the removed containers; and why some could not be removed, or why that is not
          known, or None if none are left.
        """
        removed: set[str] = set()
        began = time.monotonic()
        while True:
            try:
                found = self._ask("ps", "--all", "--quiet", "--no-trunc", *_filters(labels))
                now = time.monotonic()
                if not found and now >= began + settle_secs:
                    processes.end_monitors(removed)
                    return sorted(removed), None
                if found and now > began + _GIVE_UP_SECS:
                    raise OSError(f"{self.engine} could not remove {', '.join(found)}")
                if found:
                    removed.update(found)
                    # Both commands may fail if a container ends at this moment. `podman rm` alone
                    # would first ask the container to end and wait.
                    self._client("kill", *found)
                    self._client("rm", "--force", *found)
            except OSError as error:
                return sorted(removed), str(error)
            time.sleep(_LOOK_SECS)

    def reason(self, code: int) -> str:
        """Explains an exit code of the client; returns '' for a code of the container's command."""
        if code not in (125, 126, 127):  # the container's command may exit with these, too
            return ""
        return (
            f"exit code {code}: {self.engine} could not run the container; its last lines say why"
        )

    def _ask(self, *words: str) -> list[str]:
        done = self._client(*words)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise OSError(f"{self.engine} does not work: {lines[-1]}")
        return done.stdout.split()

    def _client(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs the engine's client; OSError if there is none, or if it does not answer."""
        try:
            return processes.execute([self.engine, *words], _ANSWER_SECS)
        except FileNotFoundError:
            raise OSError(_MISSING.format(self.engine)) from None
        except OSError as error:
            raise OSError(f"{self.engine}: {error}") from None


def _filters(labels: dict[str, str]) -> list[str]:
    return [f"--filter=label={name}={value}" for name, value in labels.items()]


def _folder(cwd: str, path: str, target: str) -> str:
    """Returns the absolute path of a folder to mount; creates it unless it has the records."""
    folder = os.path.join(os.path.expanduser(cwd), os.path.expanduser(path))
    if target != DATA:
        os.makedirs(folder, exist_ok=True)
    elif not os.path.isdir(folder):
        raise OSError(f"{folder} does not exist; set docker.data to the folder with the records")
    return folder
