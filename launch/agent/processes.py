"""Finds and ends the processes of a run, runs commands, and ends tasks with their agent."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Optional

# Labels: environment variables with the run, the host and the task. Child processes inherit them.
RUN, HOST, TASK = "LAUNCH_RUN_ID", "LAUNCH_HOST", "LAUNCH_TASK"
AGENT_WORD = "launch-agent"  # precedes the run's id on the agent's command line

_PR_SET_PDEATHSIG = 1
_LOOK_SECS = 0.1
_MOST = 1 << 26  # bytes of a command's output
_libc = ctypes.CDLL(None)


def execute(
    argv: Sequence[str],
    timeout_secs: float,
    *,
    given: str = "",
    cwd: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
) -> "subprocess.CompletedProcess[str]":
    """Runs a command to its end, with this process at the latest; collects its output.

    A process that it leaves in the background may hold the output open, which does not matter.

    Args:
      argv: the command.
      timeout_secs: the seconds after which to kill it, and its children, if it still runs.
      given: the text for its standard input.
      cwd: its working directory; None for this process's.
      env: its environment; None for this process's.

    Raises:
      OSError: it could not be run; or it did not end in time, or wrote without end, and was killed.
    """
    deadline = time.monotonic() + timeout_secs
    found, has_ended, to_write = (b"", b""), False, given.encode()
    pipe = subprocess.PIPE
    with start_child(argv, stdin=pipe, stderr=pipe, cwd=cwd, env=env) as process:
        try:
            while not has_ended:
                if sum(map(len, found)) > _MOST:
                    raise OSError(f"its output is longer than {_MOST >> 20} MiB")
                if time.monotonic() > deadline:
                    raise OSError(f"no answer within {timeout_secs:g} s")
                has_ended = process.poll() is not None  # then there is no more to come
                try:
                    found = process.communicate(to_write, timeout=_LOOK_SECS)
                    has_ended = True
                except subprocess.TimeoutExpired as error:
                    found, to_write = (error.output or b"", error.stderr or b""), b""
        finally:
            if process.poll() is None:
                send(-process.pid, signal.SIGKILL)
    texts = [data.decode(errors="replace") for data in found]
    return subprocess.CompletedProcess(argv, process.returncode, *texts)


def start_child(
    argv: Sequence[str], prepare: Optional[Callable[[], object]] = None, **options: Any
) -> "subprocess.Popen[bytes]":
    """Starts a process, in a session of its own: Ctrl-C does not reach it. Its output is a pipe.

    The kernel kills it once the thread that starts it has ended, even by SIGKILL.

    Args:
      argv: the command.
      prepare: a function that the process calls before the command; None for none.
      **options: further arguments of `subprocess.Popen`.
    """
    begin = partial(_begin, os.getpid(), prepare)
    options.update(stdout=subprocess.PIPE, start_new_session=True, preexec_fn=begin)
    return subprocess.Popen(argv, **options)


def _begin(parent: int, prepare: Optional[Callable[[], object]]) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)  # the parent ended before prctl
    if prepare is not None:
        prepare()


def labelled(**labels: str) -> list[int]:
    """Returns the ids of the processes with all of these labels, except this process.

    Args:
      **labels: the value of each of the labels RUN, HOST or TASK to search for.
    """
    wanted = {f"{name}={value}".encode() for name, value in labels.items()}
    return [pid for pid, words in _all("environ") if wanted <= set(words)]


def agents(run_id: str) -> list[int]:
    """Returns the process ids of a run's agents and their guards, except this process."""
    words = [AGENT_WORD.encode(), run_id.encode()]
    return [pid for pid, found in _all("cmdline") if found[-3:-1] == words]


def _all(name: str) -> "Iterable[tuple[int, list[bytes]]]":
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/{name}", "rb") as file:
                    yield int(entry), file.read().split(b"\0")
            except OSError:  # it has ended, or is another user's
                continue


def end_all(find: Callable[[], list[int]], patience_secs: float) -> list[int]:
    """Sends SIGTERM, then SIGKILL, to the processes that `find` returns, until none are left.

    Gives up five seconds after the first SIGKILL.

    Args:
      find: returns the ids of the processes that are left.
      patience_secs: the seconds that processes have to end before they are killed.

    Returns:
      The ids of all processes that were found, sorted.
    """
    ended: set[int] = set()
    deadline = time.monotonic() + patience_secs
    while True:
        found = find()
        late = time.monotonic() >= deadline
        if not found or time.monotonic() > deadline + 5:
            return sorted(ended)
        for pid in found:
            if late or pid not in ended:
                send(pid, signal.SIGKILL if late else signal.SIGTERM)
        ended.update(found)
        time.sleep(0.05)


def end_monitors(containers: Iterable[str]) -> None:
    """Kills podman's monitors (conmon) of removed containers, and the monitors' children.

    Both wait forever if the client was killed between creating a container and starting it.

    Args:
      containers: the ids of the removed containers.
    """
    gone = {container.encode() for container in containers}
    monitors = {
        pid
        for pid, words in _all("cmdline")
        if os.path.basename(words[0]) == b"conmon" and gone & set(words)
    }
    for pid, words in _all("stat") if monitors else ():
        # The process name may contain any character; the state and the parent follow it.
        if int(b"\0".join(words).rpartition(b")")[2].split()[1]) in monitors:
            send(pid, signal.SIGKILL)
    for pid in monitors:
        send(pid, signal.SIGKILL)


def send(pid: int, signum: int) -> None:
    """Sends a signal to a process, or to the group -`pid`; ignores one that has already ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def start_guard(work: Callable[[], object]) -> Callable[[], None]:
    """Forks a guard process, which works if this process is killed.

    The kernel already kills a task whose parent ends, but neither a task's children nor containers.

    Args:
      work: a function for the guard to call, which ends what is left.

    Returns:
      A function that dismisses the guard and waits for its exit; call it before this process ends.
    """
    reading, writing = os.pipe()
    if guard := os.fork():
        os.close(reading)

        def send_home() -> None:
            with contextlib.suppress(BrokenPipeError, ChildProcessError):  # the guard was killed
                os.write(writing, b".")
                os.waitpid(guard, 0)

        return send_home
    try:
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        os.setsid()
        os.dup2(reading, 0)
        os.closerange(1, 4096)  # including the agent's output, whose end the launcher waits for
        if not os.read(0, 1):
            work()
    finally:
        os._exit(0)
