"""Finds and ends the processes of a run, and makes processes end together with their parent."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable

# Marks: environment variables with the run, the host and the task. Child processes inherit them.
RUN, HOST, TASK = "LAUNCH_RUN_ID", "LAUNCH_HOST", "LAUNCH_TASK"
AGENT_WORD = "launch-agent"  # precedes the run's id on the agent's command line

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

try:
    import ctypes

    _libc = ctypes.CDLL(None, use_errno=True)
except (ImportError, OSError):  # Python without ctypes: only the guard ends tasks
    _libc = None  # type: ignore[assignment]


def die_with(parent: int) -> None:
    """Makes the kernel kill this process when its parent ends, even if SIGKILL ended the parent."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)  # the parent ended before prctl


def adopt_orphans() -> None:
    """Makes this process the parent of its descendants when their own parent ends."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def marked(**marks: str) -> list[int]:
    """Returns the ids of the processes with all of these marks, except this process.

    Args:
      **marks: the value of each of the marks RUN, HOST or TASK to search for.
    """
    wanted = {f"{name}={value}".encode() for name, value in marks.items()}
    return [pid for pid, words in _all("environ") if wanted <= set(words)]


def agents(run_id: str) -> list[int]:
    """Returns the process ids of a run's agents and their guards, except this process."""
    words = [AGENT_WORD.encode(), run_id.encode()]
    return [pid for pid, found in _all("cmdline") if found[-3:-1] == words]


def runs() -> set[str]:
    """Returns the ids of the runs that have a process on this host, agents included."""
    prefix = f"{RUN}=".encode()
    found = {
        word[len(prefix) :].decode(errors="replace")
        for _, words in _all("environ")
        for word in words
        if word.startswith(prefix)
    }
    agents = [words for _, words in _all("cmdline") if words[-3:-2] == [AGENT_WORD.encode()]]
    return found | {words[-2].decode(errors="replace") for words in agents}


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


def send(pid: int, signum: int, *, group: bool = False) -> None:
    """Sends a signal to a process or its group; ignores a process that has already ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group:
            os.killpg(pid, signum)
        else:
            os.kill(pid, signum)


def start_guard(run_id: str, host: str, finish: Callable[[], None]) -> Callable[[], None]:
    """Forks a guard process, which kills the tasks of this host if this process is killed.

    The kernel already kills a task whose parent ends; the guard also kills a task's children.

    Args:
      run_id: the id of the run.
      host: the value of the mark HOST of this host's tasks.
      finish: a function for the guard to call after killing the tasks, to remove containers.

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
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        os.setsid()
        os.dup2(reading, 0)
        os.closerange(1, 4096)  # including the agent's output, whose end the launcher waits for
        if not os.read(0, 1):
            end_all(lambda: marked(**{RUN: run_id, HOST: host}), 0)
            finish()
    finally:
        os._exit(0)
