"""Prepares hosts: the shell scripts of `scripts/` over ssh; `tar` here sends some an archive.

A host keeps what an earlier call has made, so that the same command goes on where it was. Files are
replaced once all of them have come.
"""

import base64
import collections
import contextlib
import hashlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Optional

from launch.agent import processes
from launch.cluster.model import Host
from launch.cluster.tasks import CODE, PACKAGES, SCRIPT
from launch.connect.agent_client import everywhere
from launch.connect.link import LEASE_SECS, Transport, start
from launch.errors import HostError, LaunchError

MARK = "cifar10-setup "  # begins a line to show; login shells and programs print others
_INCOMPLETE = "INCOMPLETE"  # in a folder of records that no reader is to take for a complete one
_SSH_FAILED = 255  # exit code; others are those of the scripts
_LONGEST = 1 << 16  # bytes of a line
_SHOWN = 300  # characters of a line
_LAST_LINES = 8
_NO_CODE = ("__pycache__", "built")  # folders


def _script(name: str) -> str:
    return (resources.files("launch.connect") / "scripts" / f"{name}.sh").read_text("utf-8")


@dataclass(frozen=True)
class Step:
    """A part of a host's preparation.

    Attributes:
      name: what lines about it begin with, and the name of the shell script, which runs in the
        working directory.
      values: variables of the script, whose values may have any characters, and begin with `~`.
      files: name below a folder -> path of the files that the script reads in an archive; None: its
        standard input stays open while the launcher is there.
      before: what the script reads before the archive; it knows its `size` in bytes.
    """

    name: str
    values: Mapping[str, str]
    files: Optional[Mapping[str, Path]] = None
    before: bytes = b""

    def line(self, host: Host) -> str:
        """Returns the line for a host's login shell, whichever that is."""
        sizes = {"count": str(len(self.files or ())), "size": str(len(self.before))}
        values = {"mark": MARK, "workdir": host.workdir, **sizes, **self.values}
        set_ = "".join(f"{name}=$(place {shlex.quote(text)})\n" for name, text in values.items())
        script = f"{_script('tools')}{set_}begin\n{_script(self.name)}"
        code = base64.b64encode(script.encode()).decode()
        return f"""exec sh -c 'eval "$(echo {code} | base64 -d)"'"""


def code_step(files: Mapping[str, Path]) -> Step:
    """Returns the step that makes the code the same as here; see `code_files`."""
    digest = hashlib.sha256()
    for name in sorted(files, key=os.fsencode):
        digest.update(files[name].read_bytes())
    return Step("code", {"sum": digest.hexdigest(), "packages": " ".join(PACKAGES)}, files)


def records_step(files: Mapping[str, Path], folder: str) -> Step:
    """Returns the step that copies records into a folder, unless they are there.

    Args:
      files: name -> path, with their manifest; see `records`.
      folder: the folder there.
    """
    sums = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    before = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums, key=os.fsencode))
    return Step("records", {"folder": folder}, files, os.fsencode(before))


def kernels_step(python: str) -> Step:
    """Returns the step that compiles the kernels, with a Python there."""
    return Step("kernels", {"python": python})


def prepare(
    hosts: Sequence[Host],
    steps: Callable[[Host], Iterable[Step]],
    transport: Transport,
    say: Callable[[str, str], None],
    stops: Sequence[int],
) -> dict[str, str]:
    """Prepares several hosts at once, or ends early once `stops` has a signal.

    Args:
      hosts: the hosts.
      steps: a function that returns the steps of a host.
      transport: how the launcher reaches the hosts.
      say: shows a line of a host, which it gets with the host's name.
      stops: the signals that have come.

    Returns:
      Host's name -> why it failed, with the step and the last lines.
    """
    running: list[subprocess.Popen[bytes]] = []

    def prepare_host(host: Host) -> None:
        for step in steps(host):
            if not stops:
                _take(step, host, transport, partial(say, host.name), running)

    def meanwhile() -> None:
        for process in list(running) if stops else ():
            if process.poll() is None:
                processes.send(-process.pid, signal.SIGTERM)

    return everywhere(hosts, prepare_host, meanwhile=meanwhile).failed


def _take(
    step: Step,
    host: Host,
    transport: Transport,
    say: Callable[[str], None],
    running: "list[subprocess.Popen[bytes]]",
) -> None:
    """Takes a step on a host; HostError if it fails."""
    line, last = step.line(host), collections.deque[str](maxlen=_LAST_LINES)
    command = transport.command(host, ["sh", "-c", line], line, LEASE_SECS)
    wrong, begun = "", False
    with contextlib.ExitStack() as stack:
        tar = None if step.files is None else stack.enter_context(_tar(host.name, step))
        given = subprocess.PIPE if tar is None else tar.stdout
        process = start(host.name, command, given=given, errors=subprocess.STDOUT)
        running.append(stack.enter_context(process))
        assert process.stdout is not None
        while data := process.stdout.readline(_LONGEST):
            text = data.decode(errors="replace").strip()[:_SHOWN]
            words = text.removeprefix(MARK)
            if not text.startswith(MARK):
                last.extend([text] if text else [])
            elif words.startswith("failed: "):
                wrong = words.removeprefix("failed: ")  # The last lines say more.
            else:
                last.clear()
                if begun:
                    say(f"{step.name}: {words}")
                begun = True
        code = process.wait()
    if not begun or code == _SSH_FAILED:
        why = transport.explain(host, code, "\n".join(last))
        raise HostError(f"{host.name}: connection: {why}")
    if code or wrong:
        why = wrong or f"the shell there ended with exit code {code}"
        raise HostError("\n    ".join([f"{host.name}: {step.name}: {why}", *last]))


def _tar(host_name: str, step: Step) -> "subprocess.Popen[bytes]":
    """Starts to write a step's files into an archive, by their names below one folder.

    It ends once its output is closed: a host that has the files does not read it.
    """
    name, path = next(iter((step.files or {}).items()))
    words = ["tar", "-chf", "-", "-C", str(path).removesuffix(name), "--", *(step.files or ())]
    with tempfile.TemporaryFile() as before:
        before.write(step.before)
        before.seek(0)
        command = ["sh", "-c", 'cat; exec "$@"', "sh", *words]
        return start(host_name, command, given=before, errors=None)


def code_files(
    root: Path, requirements: Optional[str] = None, program: Optional[str] = None
) -> dict[str, Path]:
    """Returns what a host needs of a checkout: path in it -> path here.

    Args:
      root: the folder with the code.
      requirements: a further requirements file in it.
      program: the script that tasks run, from the folder.

    Raises:
      LaunchError: the folder is no checkout, or has no such file.
    """
    if not (root / SCRIPT).is_file():
        raise LaunchError(
            f"a checkout is copied to the hosts, but {root} has no {SCRIPT}; run the launcher in a "
            "checkout, or install the same package on the hosts"
        )
    more = {"--requirements": requirements, "--program": program}
    for flag, name in more.items():
        if name is not None and (os.path.isabs(name) or not (root / name).is_file()):
            rule = "such as requirements.lock" if name is requirements else "without a / before it"
            raise LaunchError(f"{flag} must be a file in {root}, {rule}, got {name!r}")
    parts = [root / part for part in (*CODE, "launch", "Makefile", "pyproject.toml")]
    parts += [*root.glob("requirements*"), *(root / name for name in more.values() if name)]
    return {
        str(path.relative_to(root)): path
        for part in parts
        for path in (part, *part.rglob("*"))
        if path.is_file()
        and not any(name in _NO_CODE or name[0] == "." for name in path.relative_to(part).parts)
    }


def records(folder: Path) -> dict[str, Path]:
    """Returns the records in a folder with its manifest; none while the folder is incomplete."""
    if (folder / _INCOMPLETE).exists():
        return {}
    found = sorted(folder.glob("*.tfrecords"))
    found += folder.glob("manifest.json") if found else ()
    return {path.name: path for path in found}
