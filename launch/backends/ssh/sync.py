"""Copies the code to several hosts at a time with rsync, for `sync: true`."""

import re
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from launch.agent import bounded_run, processes
from launch.backends.ssh.transport import OPTIONS, OWN_ERROR, TRANSPORT, own_error, target
from launch.backends.tool_errors import last_line, meaning
from launch.cluster.host_list import ROOT
from launch.cluster.model import Host
from launch.cluster.tasks import CODE, SCRIPT
from launch.connect.everywhere import everywhere
from launch.connect.tries import Tries
from launch.errors import HostError, LaunchError
from launch.supervise.run_loop import stop_signals

_PARTS = (*CODE, "requirements.txt", "requirements.lock")  # data and output are not copied
_SUMMARY = re.compile(r"rsync error:|rsync: connection unexpectedly closed")
_ENDED_EARLY = 12  # rsync's exit code
_NOTHING_CAME = "rsync: connection unexpectedly closed (0 bytes received so far)"
_SILENCE_SECS = 60
_AT_ONCE = 16  # hosts, which share the bandwidth of this machine


def sync_code(hosts: Sequence[Host], source: Path = ROOT) -> None:
    """Makes the code in each host's working directory the same as in `source`.

    Signals that ask for the end stop the copies, and raise SystemExit (128 + n).

    Raises:
      LaunchError: there is no checkout to copy.
      HostError: the copy failed; the message names each host where it failed.
    """
    if not (source / SCRIPT).exists():
        raise LaunchError(
            f"sync copies a checkout, but {source} has no {SCRIPT}; run the launcher in a "
            "checkout, or leave sync out and install the same package on the hosts"
        )
    running: list[subprocess.Popen[bytes]] = []
    closing = threading.Event()

    def copy(host: Host) -> None:
        if not stops:
            _copy(host, source, running.append, Tries(closing))

    def meanwhile() -> None:
        if stops:
            closing.set()
            for process in list(running):
                if process.poll() is None:
                    processes.send(process.pid, signal.SIGTERM, group=True)  # its ssh, too

    with stop_signals() as stops:
        answers = everywhere(hosts, copy, at_once=_AT_ONCE, meanwhile=meanwhile)
    if stops:
        raise SystemExit(128 + stops[0])
    answers.of_all()


def command(host: Host, source: Path) -> list[str]:
    """Returns the rsync command; no shell on either side interprets the paths."""
    place = host.workdir
    if place == "~" or place.startswith("~/"):  # a relative path starts from the home
        place = place[1:].strip("/") or "."
    name = target(host)
    if ":" in host.name:
        name = name.replace(host.name, f"[{host.name}]")
    parts = [str(source / part) for part in _PARTS if (source / part).exists()]
    return [
        "rsync",
        "--archive",
        "--delete",  # only inside the folders that are copied
        "--exclude=__pycache__",
        "--protect-args",
        f"--timeout={_SILENCE_SECS}",
        f"--rsh=ssh -T {' '.join(OPTIONS)}",
        "--",
        *parts,
        f"{name}:{place}/",
    ]


def _copy(
    host: Host,
    source: Path,
    started: "Callable[[subprocess.Popen[bytes]], object]",
    tries: Tries,
) -> None:
    """Copies the code to a host, and tries again if the host is busy; HostError if that fails."""
    while True:
        done = _run(host, source, started)
        if not done.returncode:
            return
        is_busy = TRANSPORT.is_busy(host, _code_of_ssh(done), done.stderr)
        if not is_busy or not tries.again():
            raise HostError(f"{host.name}: {_explain(host, done)}")


def _run(
    host: Host, source: Path, started: "Callable[[subprocess.Popen[bytes]], object]"
) -> "subprocess.CompletedProcess[str]":
    try:
        return bounded_run.run(command(host, source), own_session=True, started=started)
    except FileNotFoundError:
        raise HostError(
            f"{host.name}: sync needs rsync here; install it, or leave sync out"
        ) from None
    except OSError as error:
        raise HostError(f"{host.name}: {error.strerror or error}") from None


def _code_of_ssh(done: "subprocess.CompletedProcess[str]") -> int:
    """Returns the exit code of rsync's ssh or, if that has done its work, of rsync itself.

    rsync ends with ssh's code only if ssh has ended before. Else it ends with its own code for a
    stream that ended early; if nothing came at all, ssh or the host's shell is the cause.
    """
    is_hidden = done.returncode == _ENDED_EARLY and _NOTHING_CAME in done.stderr
    return OWN_ERROR if is_hidden else done.returncode


def _explain(host: Host, done: "subprocess.CompletedProcess[str]") -> str:
    """Returns why a copy failed, and the way out.

    The first lines of the errors may be a banner of the host, and the last ones rsync's summary.
    """
    errors = done.stderr
    known = meaning("rsync", errors) or own_error(host, _code_of_ssh(done), errors)
    lines = [line for line in errors.splitlines() if not _SUMMARY.match(line)]
    last = last_line("\n".join(lines), "") or last_line(errors, "no reason given")
    return known or f"rsync exit code {done.returncode}: {last}"
