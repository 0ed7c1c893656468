"""Prepares a host for training: the program that `setup` and `sync: true` run there, by itself.

The launcher sends this source, then, once it is asked to, one tar archive with `code/` and perhaps
`records/`; standard input then stays open. Everything ends with standard input. A connection that
is lost without its end, as when the launcher's machine loses power, leaves the processes to go on
until sshd here gives it up. Lines to the launcher begin with a mark, since a login shell and the
programs that run here print other lines.
"""

import contextlib
import fcntl
import hashlib
import io
import os
import platform
import select
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any, Optional

MARK = "cifar10-setup "
LOCK_NAME = ".setup.lock"  # in the working directory, and in the folder of the records
_PART = f".{socket.gethostname()}.part"  # ends the names of this host's files that are not whole
_INCOMPLETE = "INCOMPLETE"  # in a folder of records that no reader is to take for a complete one
_BEAT_SECS = 5.0
_PYTHONS = ("python3.11", "python3.10", "python3.9", "python3", "python")
_FITS = "import sys, ensurepip; sys.exit(not (3, 9) <= sys.version_info < (3, 12))"
_COVERED = {"requirements.lock": ("x86_64", "aarch64"), "requirements-gpu.lock": ("x86_64",)}
_VENV_BYTES = 3 << 30
_LAST_LINES = 8  # of pip; it goes on after errors in earlier ones
_NO_NETWORK = (
    "name resolution", "Failed to establish a new connection", "Network is unreachable",
    "timed out", "Connection refused", "ProxyError", "from versions: none",
)  # fmt: skip
_writing = threading.Lock()


class Failed(Exception):
    """A step cannot be done; the message says why, and `lines` what the program has written."""

    def __init__(self, reason: str, lines: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.lines = lines


def tell(kind: str, words: str = "") -> None:
    """Writes a line to the launcher: `step`, `say`, `send`, `beat`, `failed` or `done`."""
    with _writing:
        print(f"\n{MARK}{kind} {words}", flush=True)  # a program may not have ended its last line


def prepare(order: dict[str, Any]) -> None:
    """Copies the code, makes the venv, compiles the kernels, and copies or makes the records.

    Args:
      order: `workdir`; `code`, the number of its files in the archive; `packages`, whose Python
        files that are not in the archive are removed; `requirements` and `venv`, which is None for
        none to make; `python`, or None where nothing trains; `folder`, `records` (name -> SHA-256)
        or None, and `source` or None.

    Raises:
      Failed: a step cannot be done.
    """
    workdir = os.path.abspath(os.path.expanduser(order["workdir"]))
    try:
        os.makedirs(workdir, exist_ok=True)
        os.chdir(workdir)
    except OSError as error:
        raise Failed(f"{workdir}: {error.strerror}; choose another folder with --workdir") from None
    folder = os.path.abspath(os.path.expanduser(order["folder"]))
    with _locked(workdir):
        with contextlib.ExitStack() as held:
            wants = not _has_records(folder, order["records"])
            if wants:  # else nothing is written, since the folder may be read-only
                held.enter_context(_locked_records(folder))
                wants = not _has_records(folder, order["records"])
            _receive(order, folder, wants)
        threading.Thread(target=_end_with_the_launcher, daemon=True).start()
        if order["venv"] is not None:
            tell("step", "venv")
            tell("say", f"{order['venv']} {_make_venv(order['venv'], order['requirements'])}")
        if order["python"] is not None:
            tell("step", "kernels")
            tell("say", _compile(order["python"]))
        if order["source"] is not None:
            tell("step", "records")
            words = ["-m", "data_prep", "--source", order["source"], "--out", folder]
            with _locked_records(folder):
                lines = _run([order["python"], *words], "data_prep")
            is_old = any("is up to date" in line for line in lines)
            tell("say", "are there" if is_old else f"made from {order['source']}")


def _locked_records(folder: str) -> contextlib.AbstractContextManager[None]:
    """Locks the folder of the records; hosts with other working directories may share it."""
    os.makedirs(folder, exist_ok=True)
    return contextlib.nullcontext() if os.path.samefile(folder, ".") else _locked(folder)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Keeps other hosts that share a folder, as over NFS, out of it; the first one says so.

    The kernel unlocks it however this process ends, and an NFS server when the host is gone.
    """
    path, is_told = os.path.join(folder, LOCK_NAME), False
    file: Optional[int] = None
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # NFS locks only what can be written
        while not _try_to_lock(file):
            if not is_told:
                with open(path, encoding="utf-8", errors="replace") as owner:
                    tell("say", f"waits for {owner.read(200).strip() or 'another process'}")
            is_told = True
            if select.select([0], [], [], 1)[0]:  # The launcher sends nothing yet: it has gone.
                os._exit(1)
        with contextlib.suppress(OSError):  # It is locked, even if the disk is full.
            os.ftruncate(file, 0)
            os.write(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    except OSError as error:
        tell(
            "say",
            f"no lock in {folder} ({error.strerror}); if hosts share this folder, prepare them one "
            "at a time: --hosts NAME",
        )
    try:
        yield
    finally:
        if file is not None:
            os.close(file)


def _try_to_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _receive(order: dict[str, Any], folder: str, wants_records: bool) -> None:
    """Asks for the archive and unpacks it; then removes what was not in it."""
    mark = os.path.join(folder, _INCOMPLETE)
    names: set[str] = set()
    if wants_records:
        with open(mark, "wb"):
            pass
    tell("send", "records" if wants_records else "")
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        for member in archive:
            kind, _, name = member.name.partition("/")
            path = os.path.join(folder if kind == "records" else ".", name)
            source = archive.extractfile(member)
            assert source is not None
            with source:
                _put(source, path, member.mode)
            names.add(member.name)
    # To tarfile, an archive that is cut off between two files is a whole one.
    if len(names) < order["code"] + (len(order["records"]) if wants_records else 0):
        raise Failed("the archive ended early; nothing was removed")
    for package in order["packages"]:
        for parent, _, files in os.walk(package):
            for path in (os.path.join(parent, name) for name in files):
                if path.endswith((".py", _PART)) and f"code/{path}" not in names:
                    _remove(path)
    tell("say", f"{order['code']} files copied")
    if order["records"] is None:
        return
    tell("step", "records")
    if wants_records:
        for name in _others(folder, order["records"]):
            _remove(os.path.join(folder, name))
        _remove(mark)
        if not _has_records(folder, order["records"]):
            with open(mark, "wb"):
                pass
            raise Failed(
                "they came with other bytes than expected: they are changing where they come from, "
                "or are damaged there (python -m data_prep verify DIR)"
            )
    tell("say", f"{len(order['records'])} files copied" if wants_records else "are there")


def _put(source: IO[bytes], path: str, mode: int) -> None:
    """Replaces a file once the new one is whole; one with the same content keeps its time."""
    part = f"{path}.{os.getpid()}{_PART}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        with open(part, "wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        if _digest(part) != _digest(path):
            os.replace(part, path)
        with contextlib.suppress(PermissionError):  # It may have been there, and be another user's.
            os.chmod(path, mode)
    finally:
        _remove(part)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # A host that shares the folder may do so, too.
        os.unlink(path)


def _has_records(folder: str, records: Optional[dict[str, str]]) -> bool:
    """Returns whether a folder has these files, no other records, and is not marked."""
    if records is None:
        return True
    if os.path.exists(os.path.join(folder, _INCOMPLETE)) or _others(folder, records):
        return False
    return all(_digest(os.path.join(folder, name)) == digest for name, digest in records.items())


def _others(folder: str, records: dict[str, str]) -> list[str]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [name for name in names if name.endswith((".tfrecords", _PART)) and name not in records]


def _digest(path: str) -> Optional[str]:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for data in iter(lambda: file.read(1 << 20), b""):
                digest.update(data)
    except OSError:
        return None
    return digest.hexdigest()


def _make_venv(folder: str, lock: str) -> str:
    """Makes the venv, as `make venv` does, unless it is there; says which of both."""
    folder = os.path.expanduser(folder)
    stamp, python = os.path.join(folder, ".installed"), os.path.join(folder, "bin", "python")
    if _is_fresh(stamp, lock) and os.access(python, os.X_OK):
        return "is there"
    machine = platform.machine()
    if machine not in _COVERED.get(lock, (machine,)):
        raise Failed(
            f"{lock} is for Linux on {' or '.join(_COVERED[lock])}, and this is {machine}; to "
            "install without hashes: --requirements requirements.txt"
        )
    free = shutil.disk_usage(".").free
    if lock in _COVERED and free < _VENV_BYTES:
        raise Failed(f"{free >> 20} MiB free at {os.getcwd()}; a venv needs 3 GiB")
    place = os.path.realpath(folder)
    if os.path.exists(place):
        if not os.path.exists(os.path.join(place, "pyvenv.cfg")):
            raise Failed(f"{folder} is there and is no venv; move it away")
        shutil.rmtree(place)
    tell("say", f"makes {folder} from {lock}, which takes one to two minutes")
    _run([_host_python(), "-m", "venv", place], "python -m venv")
    hashes = ["--require-hashes", "--only-binary", ":all:"] if lock.endswith(".lock") else []
    options = ["--disable-pip-version-check", "--no-compile", "--no-input", "--progress-bar", "off"]
    _run([python, "-m", "pip", "install", *options, *hashes, "-r", lock], "pip")
    with open(stamp, "w", encoding="utf-8") as file:
        file.write(lock)
    return "made"


def _is_fresh(stamp: str, lock: str) -> bool:
    """Whether a venv was made from this lock, and not before its last change, as for `make`."""
    try:
        with open(stamp, encoding="utf-8") as file:
            return file.read() == lock and os.path.getmtime(stamp) >= os.path.getmtime(lock)
    except OSError:
        return False


def _host_python() -> str:
    """Returns a Python of this host that fits and can make a venv."""
    for name in (*_PYTHONS, sys.executable):
        with contextlib.suppress(OSError):
            if not subprocess.run([name, "-c", _FITS], capture_output=True).returncode:
                return name
    raise Failed(
        "it has no Python 3.9, 3.10 or 3.11 that can make a venv on PATH (this one is "
        f"{platform.python_version()}); on Debian: apt-get install python3-venv"
    )


def _compile(python: str) -> str:
    """Compiles the kernels; training works without them, so nothing fails here."""
    try:
        lines = _run([python, "-m", "cifar10.ops.kernels.build"], "the build")
    except Failed as failed:
        why = [line for line in failed.lines if "cannot be had" in line] or failed.lines[-1:]
        return f"left out: {(why or [str(failed)])[0].strip()}; training takes longer without"
    return "compiled" if any("Compiling" in line for line in lines) else "are there"


def _run(words: Sequence[str], name: str) -> list[str]:
    """Runs a program, whose lines the launcher gets, too; returns them."""
    lines: list[str] = []
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise Failed(f"{words[0]}: {error.strerror}") from None
    assert child.stdout is not None
    with child.stdout as stream:
        for line in stream:
            lines.append(line)
            with _writing:
                print(line, end="", flush=True)
    if code := child.wait():
        raise Failed(_why(name, code, lines), lines)
    return lines


def _why(name: str, code: int, lines: Sequence[str]) -> str:
    last = "".join(lines[-_LAST_LINES:])
    if name == "pip" and any(words in last for words in _NO_NETWORK):
        return (
            "pip finds no package index from there; give the host a way to one (its "
            "~/.config/pip/pip.conf), or a folder of wheels"
        )
    return f"{name} ended with exit code {code}"


def _end_with_the_launcher() -> None:
    """Kills this process and what it runs once standard input is at its end."""
    while os.read(0, 1 << 16):
        pass
    os.killpg(0, signal.SIGKILL)


def _beat() -> None:
    while True:
        time.sleep(_BEAT_SECS)
        tell("beat")


def main(order: dict[str, Any]) -> None:
    """Prepares this host, and tells the launcher how it went."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # What programs print may be in any encoding.
    with contextlib.suppress(OSError):  # It leads a session already.
        os.setsid()
    threading.Thread(target=_beat, daemon=True).start()
    try:
        prepare(order)
        tell("done")
    except Failed as failed:
        tell("failed", str(failed))
    except tarfile.TarError as error:
        tell("failed", f"the archive ended early, or is damaged: {error}")
    except OSError as error:
        tell("failed", f"{error.filename or 'the copy'}: {error.strerror or error}")
