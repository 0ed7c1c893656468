"""Prepares hosts: sends the code, and the records where they are missing, as a tar archive.

`launch.agent.host_setup`, which runs there, does the rest.
"""

import collections
import contextlib
import hashlib
import importlib.resources
import json
import os
import select
import signal
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Optional, cast

from launch.agent import processes
from launch.agent.host_setup import MARK
from launch.cluster.model import Host
from launch.cluster.tasks import CODE, PACKAGES, SCRIPT
from launch.connect import child
from launch.connect.bootstrap import FIRST
from launch.connect.everywhere import everywhere
from launch.connect.link import Tries
from launch.connect.transport import Transport
from launch.errors import HostError, LaunchError

SILENCE_SECS = 60.0  # the host beats every 5 s
_AT_ONCE = 16  # hosts, which share the bandwidth of this machine
_LONGEST = 1 << 16  # bytes of a line
_SHOWN = 300  # characters of a line
_LAST_LINES = 8
_PROGRAM = "launch-setup"
_NO_CODE = ("__pycache__", "built")  # folders
_VERSION_CHECK = """\
import sys
if sys.version_info < (3, 9):
    sys.exit("setup needs Python 3.9 or newer, here is " + sys.version.split()[0])
"""


@dataclass(frozen=True)
class Files:
    """Files for the hosts: name in the archive -> path here.

    Attributes:
      code: what a task and the launcher need of a checkout.
      records: the records and their manifest; empty for none.
    """

    code: Mapping[str, Path]
    records: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Preparations:
    """The preparation of several hosts at once.

    Attributes:
      transport: how the launcher reaches the hosts.
      files: what they get.
      order: returns the order for a host, see `launch.agent.host_setup.prepare`.
      say: shows a line of a host, which it gets with the host's name.
    """

    transport: Transport
    files: Files
    order: Callable[[Host], Mapping[str, Any]]
    say: Callable[[str, str], None]

    def run(self, hosts: Sequence[Host], stops: Sequence[int]) -> dict[str, str]:
        """Prepares the hosts, or ends early once `stops` has a signal.

        Returns:
          Host's name -> why it failed, with the step and the last lines.
        """
        running: list[subprocess.Popen[bytes]] = []
        closing = threading.Event()

        def prepare(host: Host) -> None:
            tries = Tries(closing)
            while not stops and not self._prepare(host, running, tries):
                pass

        def meanwhile() -> None:
            if stops:
                closing.set()
                for process in list(running):
                    if process.poll() is None:  # The host sees the end of its standard input.
                        processes.send(process.pid, signal.SIGTERM, group=True)

        return everywhere(hosts, prepare, at_once=_AT_ONCE, meanwhile=meanwhile).failed

    def _prepare(self, host: Host, running: "list[subprocess.Popen[bytes]]", tries: Tries) -> bool:
        """Prepares a host; returns False if it was busy, and it is time for another try."""
        python, step = host.agent_python, "connection"
        words = [python, "-I", "-S", "-c", FIRST, _PROGRAM]
        line = f"exec {python} -I -S -c '{FIRST}' {_PROGRAM}"
        last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        unreadable: list[str] = []

        def failed(why: str) -> HostError:
            return HostError("\n    ".join([f"{host.name}: {step}: {why}", *last]))

        try:
            process = child.start(self.transport.command(host, words, line), subprocess.STDOUT)
        except HostError as error:
            raise failed(str(error)) from None
        running.append(process)
        try:
            _write(process, _source({**self.order(host), "code": len(self.files.code)}))
            for text in _lines(process):
                kind, _, words_of = text.removeprefix(MARK).partition(" ")
                if not text.startswith(MARK):
                    last.extend([text] if text.strip() else [])
                elif kind == "done":
                    return True
                elif kind == "failed":
                    raise failed(words_of)
                elif kind == "say":
                    self.say(host.name, f"{step}: {words_of}")
                elif kind == "step":
                    step = words_of
                    last.clear()
                elif kind == "send":
                    step = "code"
                    parts = (process, words_of == "records", unreadable)
                    threading.Thread(target=self._send, args=parts, daemon=True).start()
            code, errors = process.wait(), "\n".join(last)
            if self.transport.is_busy(host, code, errors) and tries.again():
                return False
            last.clear()
            raise failed(
                unreadable[0] if unreadable else self.transport.explain(host, code, errors)
            )
        except TimeoutError:
            why = f"no message for {SILENCE_SECS:g} s: is it up, and is the network?"
            raise failed(why) from None
        finally:
            processes.send(process.pid, signal.SIGKILL, group=True)
            process.wait()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    cast(IO[bytes], stream).close()

    def _send(
        self, process: "subprocess.Popen[bytes]", with_records: bool, unreadable: list[str]
    ) -> None:
        """Sends the archive; a file here that cannot be read ends the connection."""
        parts = {f"code/{name}": path for name, path in self.files.code.items()}
        if with_records:
            parts |= {f"records/{name}": path for name, path in self.files.records.items()}
        assert process.stdin is not None
        try:
            with tarfile.open(fileobj=process.stdin, mode="w|", dereference=True) as archive:
                for name, path in parts.items():
                    archive.add(path, name, recursive=False)
            _write(process, b"")
        except (BrokenPipeError, ValueError):  # The host's lines say why.
            return
        except OSError as error:
            unreadable.append(f"{error.filename or 'a file here'}: {error.strerror or error}")
            process.kill()


def code_files(root: Path, requirements: Optional[str] = None) -> dict[str, Path]:
    """Returns what a host needs of a checkout: path in it -> path here.

    Args:
      root: the folder with the code.
      requirements: a further requirements file in it.

    Raises:
      LaunchError: the folder is no checkout, or has no such requirements file.
    """
    if not (root / SCRIPT).is_file():
        raise LaunchError(
            f"a checkout is copied to the hosts, but {root} has no {SCRIPT}; run the launcher in a "
            "checkout, or install the same package on the hosts"
        )
    if requirements is not None and not (root / requirements).is_file():
        raise LaunchError(
            f"--requirements must be a file in {root}, such as requirements.lock, got "
            f"{requirements!r}"
        )
    parts = [root / part for part in (*CODE, "launch", "Makefile", "pyproject.toml")]
    parts += [*root.glob("requirements*"), *([root / requirements] if requirements else [])]
    return {
        str(path.relative_to(root)): path
        for part in parts
        for path in (part, *part.rglob("*"))
        if path.is_file() and not any(map(_is_no_code, path.relative_to(part).parts))
    }


def _is_no_code(name: str) -> bool:
    return name in _NO_CODE or name.startswith(".")


def records(folder: Path) -> dict[str, Path]:
    """Returns the records in a folder with its manifest; none if it has no complete set."""
    if (folder / "INCOMPLETE").exists() or not folder.is_dir():
        return {}
    found = {path.name: path for path in sorted(folder.glob("*.tfrecords"))}
    manifest = folder / "manifest.json"
    if not found or set(_of_manifest(manifest)) - set(found):
        return {}
    return {**found, manifest.name: manifest} if manifest.exists() else found


def digests(files: Mapping[str, Path]) -> dict[str, str]:
    """Returns the SHA-256 of records, by the manifest among them if it names them."""
    known = _of_manifest(files["manifest.json"]) if "manifest.json" in files else {}
    return {name: known.get(name) or _digest(path) for name, path in files.items()}


def order(host: Host, **more: Any) -> dict[str, Any]:
    """Returns an order that copies the code alone, but for `more`."""
    return {
        "workdir": host.workdir, "packages": PACKAGES, "requirements": None, "venv": None,
        "python": None, "folder": ".", "records": None, "source": None, **more,
    }  # fmt: skip


def _of_manifest(path: Path) -> dict[str, str]:
    """Returns the files of a manifest and their SHA-256; {} if it cannot be read."""
    try:
        splits = json.loads(path.read_bytes())["splits"].values()
        return {str(one["name"]): str(one["sha256"]) for split in splits for one in split["files"]}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            found.update(data)
    return found.hexdigest()


def _source(order: Mapping[str, Any]) -> bytes:
    """Returns the program for a host, after a line with its length in bytes."""
    program = importlib.resources.files("launch.agent").joinpath("host_setup.py").read_text("utf-8")
    source = f"{_VERSION_CHECK}{program}\nmain({dict(order)!r})\n".encode()
    return b"%d\n%s" % (len(source), source)


def _write(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError, ValueError):  # What the host writes says why.
        process.stdin.write(data)
        process.stdin.flush()


def _lines(process: "subprocess.Popen[bytes]") -> Iterator[str]:
    """Yields the lines of a host, the longest ones cut; TimeoutError if it is silent."""
    assert process.stdout is not None
    fd, rest = process.stdout.fileno(), b""
    readable = select.poll()  # select() takes no descriptor from 1,024 on.
    readable.register(fd, select.POLLIN)
    while readable.poll(SILENCE_SECS * 1000):
        data = os.read(fd, _LONGEST)
        *lines, rest = (rest + data).split(b"\n")
        for line in [*lines, *([] if data else [rest])]:
            yield line[:_LONGEST].decode(errors="replace").strip()[:_SHOWN]
        rest = rest[-_LONGEST:]
        if not data:
            return
    raise TimeoutError
