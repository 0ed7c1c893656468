"""Prepares a host for training: the program that `setup` runs there, by itself.

It reads frames from standard input: a line `KIND LENGTH`, and as many bytes. An `order` is a JSON
object, `data` is a part of a file, and a `beat` says that the launcher lives. It writes lines of
JSON, each after a mark, since a login shell may print other lines. Everything ends with standard
input: no process is left on a host whose launcher has gone.
"""

import collections
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, NoReturn, Optional

MARK = "cifar10-setup "
_INCOMPLETE = "INCOMPLETE"  # in a folder of records that no reader is to take for a complete one
LOCK_NAME = ".setup.lock"  # in the working directory, and in the folder of the records
_BEAT_SECS = 5.0
_SILENCE_SECS = 120.0  # of the launcher, which beats as often
_LOOK_SECS = 1.0  # between two attempts to get the lock
_LAST_LINES = 8
_PYTHONS = ("python3.11", "python3.10", "python3.9", "python3", "python")
_FITS = "import sys, ensurepip; sys.exit(not (3, 9) <= sys.version_info < (3, 12))"
_COVERED = {"requirements.lock": ("x86_64", "aarch64"), "requirements-gpu.lock": ("x86_64",)}
_VENV_BYTES = 3 << 30
_NO_NETWORK = (
    "name resolution", "Failed to establish a new connection", "Network is unreachable",
    "timed out", "Connection refused", "ProxyError", "from versions: none",
)  # fmt: skip
_writing = threading.Lock()


class Failed(Exception):
    """A step cannot be done; the message says why, and `last` has the last lines of a program."""

    def __init__(self, reason: str, last: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.last = last


def tell(**event: Any) -> None:
    """Writes an event to the launcher."""
    with _writing:
        sys.stdout.write(MARK + json.dumps(event) + "\n")
        sys.stdout.flush()


class Frames:
    """The launcher's frames, read by a thread that ends this process when there are no more.

    Attributes:
      heard: the time of the last frame.
      child: the program that runs; None before the first one.
      part: the path of the file that is being written; None between files.
    """

    def __init__(self) -> None:
        self.heard = time.monotonic()
        self.child: Optional[subprocess.Popen[bytes]] = None
        self.part: Optional[str] = None
        # A thread that reads faster than the disk writes must wait.
        self._frames: queue.Queue[tuple[str, bytes]] = queue.Queue(16)
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()

    def order(self) -> dict[str, Any]:
        """Returns the next order; drops data that belongs to none."""
        while True:
            kind, payload = self._frames.get()
            if kind == "order":
                found: dict[str, Any] = json.loads(payload)
                return found

    def data(self) -> bytes:
        """Returns the next part of a file."""
        kind, payload = self._frames.get()
        if kind != "data":
            raise Failed("the launcher sent an order in the middle of a file")
        return payload

    def end(self) -> NoReturn:
        """Ends the program that runs, with its children, and this process; leaves no half file."""
        if self.child is not None and self.child.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self.child.pid, signal.SIGKILL)
        if self.part is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.part)
        os._exit(1)

    def _read(self) -> None:
        stream = sys.stdin.buffer
        while True:
            head = stream.readline().split()
            if len(head) != 2:
                self.end()
            payload = stream.read(int(head[1]))
            self.heard = time.monotonic()
            if head[0] != b"beat":
                self._frames.put((head[0].decode(), payload))
                self.heard = time.monotonic()

    def _watch(self) -> None:
        while time.monotonic() < self.heard + _SILENCE_SECS:
            try:
                tell(event="beat")
            except OSError:
                break
            time.sleep(_BEAT_SECS)
        self.end()


class Setup:
    """Carries out the launcher's orders.

    Args:
      frames: the launcher's frames.
    """

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._workdir = ""

    def enter(self, order: dict[str, Any]) -> dict[str, Any]:
        """Makes the working directory, goes there, and keeps others out until this process ends."""
        self._workdir = os.path.abspath(os.path.expanduser(order["workdir"]))
        try:
            os.makedirs(self._workdir, exist_ok=True)
            os.chdir(self._workdir)
        except OSError as error:
            words = f"{self._workdir}: {error.strerror}; choose another folder with --workdir"
            raise Failed(words) from None
        return _lock(self._workdir)

    def hold(self, order: dict[str, Any]) -> dict[str, Any]:
        """Makes the folder of the records, and keeps others out of it until this process ends.

        Hosts may share it although each has a working directory of its own. Every host locks its
        working directory first, so that no two wait for each other.
        """
        folder = os.path.abspath(os.path.expanduser(order["folder"]))
        os.makedirs(folder, exist_ok=True)
        # A second descriptor of the same lock would wait for this process.
        return {} if os.path.samefile(folder, self._workdir) else _lock(folder)

    def compare(self, order: dict[str, Any]) -> dict[str, Any]:
        """Returns which of the files `files` (path -> SHA-256) are missing or differ.

        It also says whether the folder is marked as incomplete.
        """
        folder = os.path.expanduser(order["folder"])
        wrong = [
            path
            for path, digest in order["files"].items()
            if _digest(os.path.join(folder, path)) != digest
        ]
        marked = os.path.exists(os.path.join(folder, _INCOMPLETE))
        return {"missing": wrong, "others": _others(folder, order), "marked": marked}

    def remove(self, order: dict[str, Any]) -> dict[str, Any]:
        """Removes files that the launcher does not have."""
        for path in order["paths"]:
            with contextlib.suppress(FileNotFoundError):  # hosts may share a folder of records
                os.unlink(os.path.join(os.path.expanduser(order["folder"]), path))
        return {}

    def write(self, order: dict[str, Any]) -> None:
        """Writes a file from the data frames that follow; it replaces the old one when whole."""
        path = os.path.join(os.path.expanduser(order["folder"]), order["path"])
        part = f"{path}.part-{socket.gethostname()}-{os.getpid()}"
        digest, left = hashlib.sha256(), order["size"]
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        self._frames.part = part
        try:
            with open(part, "wb") as file:
                while left > 0:
                    data = self._frames.data()
                    left -= len(data)
                    digest.update(data)
                    file.write(data)
            if digest.hexdigest() != order["digest"]:
                raise Failed(
                    f"{order['path']} came with other bytes than expected: it is changing where "
                    "it comes from, or is damaged there (records: python -m data_prep verify DIR)"
                )
            os.chmod(part, order["mode"])
            os.replace(part, path)
        finally:
            if os.path.exists(part):
                os.unlink(part)
            self._frames.part = None

    def mark(self, order: dict[str, Any]) -> dict[str, Any]:
        """Marks a folder of records as incomplete, or, with `done`, takes the mark away."""
        path = os.path.join(os.path.expanduser(order["folder"]), _INCOMPLETE)
        if order["done"]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        else:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            with open(path, "wb"):
                pass
        return {}

    def venv(self, order: dict[str, Any]) -> dict[str, Any]:
        """Makes the venv, as `make venv` does, unless it is there; says which of both."""
        folder, lock = os.path.expanduser(order["venv"]), order["requirements"]
        stamp, python = os.path.join(folder, ".installed"), os.path.join(folder, "bin", "python")
        if _is_fresh(stamp, lock) and os.access(python, os.X_OK):
            return {"words": "is there"}
        machine = platform.machine()
        if platform.system() != "Linux" or machine not in _COVERED.get(lock, (machine,)):
            raise Failed(
                f"{lock} is for Linux on {' or '.join(_COVERED[lock])}, and this is "
                f"{platform.system()} on {machine}; to install without hashes: --requirements "
                "requirements.txt"
            )
        free = shutil.disk_usage(self._workdir).free
        if lock in _COVERED and free < _VENV_BYTES:
            raise Failed(f"{free >> 20} MiB free at {self._workdir}; a venv needs 3 GiB")
        place = os.path.realpath(folder) if os.path.islink(folder) else folder
        if os.path.exists(folder):
            if not os.path.exists(os.path.join(folder, "pyvenv.cfg")):
                raise Failed(f"{folder} is there and is no venv; move it away")
            shutil.rmtree(place)
        self._run([self._host_python(), "-m", "venv", place], "python -m venv")
        hashes = ["--require-hashes", "--only-binary", ":all:"] if lock.endswith(".lock") else []
        options = ["--disable-pip-version-check", "--no-compile", "--no-input"]
        install = [python, "-m", "pip", "install", "--progress-bar", "off", *options, *hashes]
        self._run([*install, "-r", lock], "pip", _num_packages(lock))
        with open(stamp, "w", encoding="utf-8") as file:
            file.write(lock)
        return {"words": "made"}

    def kernels(self, order: dict[str, Any]) -> dict[str, Any]:
        """Compiles the kernels; training works without them, so nothing fails here."""
        try:
            lines = self._run([order["python"], "-m", "cifar10.ops.kernels.build"], "the build")
        except Failed as failed:
            last = [*failed.last[-1:], str(failed)]
            why = next((one for one in failed.last if "cannot be had" in one), last[0])
            return {"words": "left out", "note": f"{why}; training takes longer without"}
        return {"words": "compiled" if any("Compiling" in line for line in lines) else "are there"}

    def make_records(self, order: dict[str, Any]) -> dict[str, Any]:
        """Makes the records with data_prep."""
        words = ["--source", order["source"], "--out", os.path.expanduser(order["folder"])]
        lines = self._run([order["python"], "-m", "data_prep", *words], "data_prep")
        is_old = any("is up to date" in line for line in lines)
        return {"words": "are there" if is_old else f"made from {order['source']}"}

    def _host_python(self) -> str:
        """Returns a Python of this host that fits and can make a venv."""
        for name in (*_PYTHONS, sys.executable):
            try:
                done = subprocess.run(
                    [name, "-c", _FITS],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            except OSError:
                continue
            if done.returncode == 0:
                return name
        raise Failed(
            "it has no Python 3.9, 3.10 or 3.11 that can make a venv on PATH (this one is "
            f"{platform.python_version()}); on Debian: apt-get install python3-venv"
        )

    def _run(self, words: list[str], name: str, total: int = 0) -> tuple[str, ...]:
        """Runs a program to its end, and tells of its lines; returns the last of them."""
        last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        try:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        except OSError as error:
            raise Failed(f"{words[0]}: {error.strerror}") from None
        self._frames.child = child
        num = 0
        assert child.stdout is not None
        with child.stdout as stream:
            for raw in stream:
                line = raw.decode(errors="replace").strip()[:300]
                if line:
                    last.append(line)
                    num += line.startswith("Collecting ")
                    tell(event="progress", done=min(num, total), of=total, words=line)
        code = child.wait()
        if code:
            raise Failed(_why(name, code, tuple(last)), tuple(last))
        return tuple(last)


def _lock(folder: str) -> dict[str, Any]:
    """Locks a folder until this process ends; returns a note for the user if that cannot be."""
    try:
        _wait_for(os.path.join(folder, LOCK_NAME))
    except OSError as error:
        return {
            "note": f"no lock in {folder} ({error.strerror}): hosts that share this folder must be "
            "prepared one after the other"
        }
    return {}


def _wait_for(path: str) -> None:
    """Locks a file until this process ends; waits for others, and tells the launcher for whom.

    Hosts may share the working directory over NFS, where this locks, too. The kernel unlocks the
    file however this process ends, and the server when the host is gone.

    Raises:
      OSError: the file system has no locks, or this user may not write there.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # NFS locks only what can be written
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            with open(path, "rb") as again:  # NFS reads anew what is opened anew
                owner = " ".join(again.read(200).decode(errors="replace").split())
            words = f"waits for {owner or 'another process'}, which prepares this folder"
            tell(event="progress", done=0, of=0, words=words)
        time.sleep(_LOOK_SECS)
    os.ftruncate(file, 0)
    os.write(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    os.fsync(file)


def _why(name: str, code: int, last: tuple[str, ...]) -> str:
    if name == "pip" and any(words in line for line in last for words in _NO_NETWORK):
        return (
            "pip finds no package index from there; give the host a way to one (its "
            "~/.config/pip/pip.conf), or a folder of wheels"
        )
    return f"{name} ended with exit code {code}"


def _digest(path: str) -> Optional[str]:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for data in iter(lambda: file.read(1 << 20), b""):
                digest.update(data)
    except OSError:
        return None
    return digest.hexdigest()


def _others(folder: str, order: dict[str, Any]) -> list[str]:
    """Returns the files that the launcher lacks, of those that count: by place and ending."""
    found = []
    for place in order["places"]:
        for parent, _, names in os.walk(os.path.join(folder, place)):
            paths = [os.path.relpath(os.path.join(parent, name), folder) for name in names]
            found += [path for path in paths if path.endswith(order["ending"])]
    return sorted(path for path in found if path not in order["files"])


def _is_fresh(stamp: str, lock: str) -> bool:
    """Whether a venv was made from this lock, and not before its last change, as for `make`."""
    try:
        with open(stamp, encoding="utf-8") as file:
            return file.read() == lock and os.path.getmtime(stamp) >= os.path.getmtime(lock)
    except OSError:
        return False


def _num_packages(lock: str) -> int:
    with open(lock, encoding="utf-8") as file:
        names = {line.split("=")[0] for line in file if "==" in line and line[0] not in "#- "}
    return len(names)


def main() -> None:
    """Carries out orders until one fails or the launcher ends."""
    setup = Setup(Frames())
    frames = setup._frames
    tell(event="hello")
    while True:
        order = frames.order()
        try:
            answer = getattr(setup, order["do"])(order)
        except Failed as failed:
            tell(event="failed", reason=str(failed), last=failed.last)
        except OSError as error:
            reason = f"{error.filename or order['do']}: {error.strerror or error}"
            tell(event="failed", reason=reason, last=[])
        else:
            if answer is not None:
                tell(event="done", **answer)


if __name__ == "__main__":
    main()
