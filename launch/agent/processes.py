"""Finds and ends processes of a run, and ties the life of one process to another's."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable

# Each task's environment names its run, its host and itself, and a child inherits that.
RUN, HOST, TASK = "LAUNCH_RUN_ID", "LAUNCH_HOST", "LAUNCH_TASK"
AGENT_WORD = "launch-agent"  # stands on an agent's command line, before the run

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

try:
    import ctypes

    _libc = ctypes.CDLL(None, use_errno=True)
except (ImportError, OSError):  # a small Python: the guard alone does it then
    _libc = None  # type: ignore[assignment]


def die_with(parent: int) -> None:
    """Has the kernel kill this process when its parent ends, even by SIGKILL."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)  # it ended in between


def adopt_orphans() -> None:
    """Makes this process the parent of descendants whose own parent ends."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def marked(**marks: str) -> list[int]:
    """Returns the processes whose environment has all of these marks, without this process.

    Args:
      **marks: RUN, HOST or TASK -> value.
    """
    wanted = {f"{name}={value}".encode() for name, value in marks.items()}
    return [pid for pid, words in _all("environ") if wanted <= set(words)]


def agents(run_id: str) -> list[int]:
    """Returns the agents of a run and their guards, without this process."""
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
    """Asks the processes that `find` finds to end, then kills them, until it finds none.

    Args:
      find: returns the processes that are left.
      patience_secs: the time that they get before they are killed.

    Returns:
      All processes that were found.
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
    """Kills podman's monitors of containers that are gone, and what they had begun to start.

    Both wait without end if the client was killed between making a container and starting it.

    Args:
      containers: their ids.
    """
    gone = {container.encode() for container in containers}
    monitors = {
        pid
        for pid, words in _all("cmdline")
        if os.path.basename(words[0]) == b"conmon" and gone & set(words)
    }
    for pid, words in _all("stat") if monitors else ():
        # The name may hold anything; what follows it are the state and the parent.
        if int(b"\0".join(words).rpartition(b")")[2].split()[1]) in monitors:
            send(pid, signal.SIGKILL)
    for pid in monitors:
        send(pid, signal.SIGKILL)


def send(pid: int, signum: int, *, group: bool = False) -> None:
    """Signals a process, or its group; one that has ended already is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group:
            os.killpg(pid, signum)
        else:
            os.kill(pid, signum)


def start_guard(run_id: str, host: str, finish: Callable[[], None]) -> Callable[[], None]:
    """Forks a guard process, which kills the tasks of this host if this process is killed.

    The kernel already kills a task whose parent ends; the guard reaches a task's own children.

    Args:
      run_id: the id of the run.
      host: the mark of the host's tasks.
      finish: ends what is no process of this user, such as containers.

    Returns:
      A function that dismisses the guard and waits for its exit; call it before this process ends.
    """
    reading, writing = os.pipe()
    if guard := os.fork():
        os.close(reading)

        def send_home() -> None:
            with contextlib.suppress(BrokenPipeError, ChildProcessError):  # it was killed
                os.write(writing, b".")
                os.waitpid(guard, 0)

        return send_home
    try:
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        os.setsid()
        os.dup2(reading, 0)
        os.closerange(1, 4096)  # above all the agent's streams, whose end the launcher waits for
        if not os.read(0, 1):
            end_all(lambda: marked(**{RUN: run_id, HOST: host}), 0)
            finish()
    finally:
        os._exit(0)
