"""Runs a task as a process in its own session; threads read its output and write its log."""

import contextlib
import os
import queue
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Optional, TypeVar

from launch.agent import processes
from launch.agent.logs import LogFile, Mask
from launch.agent.protocol import SHOWN, Message
from launch.agent.tcp_ports import PortTaken, why_not

T = TypeVar("T")

_CHUNK = 1 << 16
_LONGEST = 1 << 16  # bytes of a line to wait for its end
_AT_ONCE = 1 << 16  # characters of a message's lines; JSON has at most twelve bytes for each
_LAST_CHUNKS = 16  # to read of an ended task: a pipe holds 1 MiB, and others may still write
_REST_SECS = 0.5  # for the rest of an ended task's output, which another process may hold open
_LOOK_SECS = 0.1
_BACKLOG = 256  # reads, each of at most _CHUNK, that wait for the disk with the log

# Tells a task that its cores are reserved for it (read by `cifar10/step/devices.py`).
OWN_CORES = "CIFAR10_OWN_CORES"

Send = Callable[..., bool]  # takes a message; with `droppable`, returns False if it was dropped


class Running:
    """A task that has been started.

    While the disk with its log does not answer, much output waits in its pipe. Once the task has
    got a signal, the log loses it instead, so that the task can save.

    Args:
      order: the launcher's message: task, argv, script, cwd, env, gpus, share, port, log, masked,
        last; and contained, true if the process is the client of a container.
      send: sends a message with lines to the launcher; called in the thread that reads.

    Attributes:
      name: the task's name, such as `worker/0`.
      pid: the process id.
      port: the port on which it listens; None if it needs none.
      signals: the signals that the agent has sent to the task.
      last: whether the task ends after the others, as a ps does.

    Raises:
      OSError: the task cannot be started; the message says why.
    """

    def __init__(self, order: Message, send: Send) -> None:
        self.name: str = order["task"]
        self.last: bool = order["last"]
        self.port: Optional[int] = order["port"]
        self.signals: list[int] = []
        self._send = send
        self._contained = order.get("contained", False)
        self._has_written = self._has_ended = self._is_over = self._is_lossy = False
        self._dropped = 0  # lines not sent because the launcher was too slow; the log has them
        cwd = os.path.expanduser(order["cwd"])
        script = order["script"]
        if script is not None and not os.path.exists(os.path.join(cwd, script)):
            raise OSError(f"{cwd} has no {script}; give the code's folder with --workdir")
        in_use = why_not(self.port) if self.port else None
        if in_use:
            raise PortTaken(in_use)
        pinned = {OWN_CORES: "1"} if order["share"] else {}
        env = _with_gpus({**os.environ, **pinned, **order["env"]}, order)
        try:
            self._mask = Mask(env.get(name, "") for name in order["masked"])
            self._popen = _spawn(order["argv"], cwd, env, order["share"])
        except ValueError as error:  # a NUL, or half a character, among the words or variables
            raise OSError(f"{order['argv'][0]} cannot be run: {error}") from None
        self.pid = self._popen.pid
        self._to_log: queue.Queue[Optional[bytes]] = queue.Queue(_BACKLOG)
        self._logging = threading.Thread(target=self._write, args=(order["log"],), daemon=True)
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        try:
            self._logging.start()
            self._thread.start()
        except RuntimeError as error:
            with self._popen:
                self.kill_group()
            self._to_log.put(None)
            raise OSError(f"its output cannot be read: {error}; see ulimit -u") from None

    def poll(self) -> Optional[int]:
        """Returns the exit code, -n for signal n; None while the process runs."""
        return self._popen.poll()

    def kill_group(self) -> None:
        """Ends what the task has left in its process group."""
        processes.send(self.pid, signal.SIGKILL, group=True)

    def finish(self) -> None:
        """Waits a moment for the rest of an ended task's output."""
        self._has_ended = True
        self._thread.join(_REST_SECS)
        self._is_over = True

    @property
    def is_written(self) -> bool:
        """Whether all of an ended task's output is in its log."""
        return not self._thread.is_alive() and not self._logging.is_alive()

    def send(self, signum: int) -> None:
        """Sends a signal to the task's process group.

        The client of a container ignores it while it creates the container. A container that has
        not written a line yet has nothing to save, so it is killed.
        """
        if self._contained and not self._has_written:
            signum = signal.SIGKILL
        self.signals.append(int(signum))
        processes.send(self.pid, signum, group=True)

    def _pass_on(self) -> None:
        """Sends the lines of the output, with secrets masked, and passes them on to the log."""
        rest, left = b"", _LAST_CHUNKS
        there = select.poll()
        assert self._popen.stdout is not None
        with self._popen.stdout as pipe:
            there.register(pipe, select.POLLIN)
            while left:
                if not there.poll(_LOOK_SECS * 1000):
                    if self._has_ended and rest:  # and another process holds the pipe
                        self._take(rest + b"\n")
                        rest = b""
                    continue
                data = os.read(pipe.fileno(), _CHUNK)
                if not data:
                    break
                left -= self._is_over
                rest += data
                end = rest.rfind(b"\n") + 1
                if not end and len(rest) > _LONGEST + self._mask.longest:  # sent in parts
                    end = self._mask.cut(rest)
                self._take(rest[:end])
                rest = rest[end:]
        if rest:
            self._take(rest + b"\n")
        self._to_log.put(None)

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._has_written = True
        data = self._mask.data(data)
        lines = data.removesuffix(b"\n").split(b"\n")
        for some in portions([one.decode(errors="replace").rstrip("\r")[:SHOWN] for one in lines]):
            message = {"event": "lines", "task": self.name, "lines": some, "dropped": self._dropped}
            is_sent = self._send(message, droppable=True)
            self._dropped = 0 if is_sent else self._dropped + len(some)
        while not (self.signals and self._to_log.full()):
            with contextlib.suppress(queue.Full):
                self._to_log.put(data, timeout=_LOOK_SECS)
                return
        if not self._is_lossy:
            self._is_lossy = True
            self._note("the disk with its log does not answer; the log loses lines")

    def _write(self, path: str) -> None:
        with contextlib.closing(LogFile(path)) as log:
            while (data := self._to_log.get()) is not None:
                log.write(data)
                error = log.new_error()
                if error is not None:
                    self._note(f"{error}, but the job goes on")

    def _note(self, text: str) -> None:
        self._send({"event": "note", "text": f"{self.name}: {text}"})


def portions(lines: list[str]) -> Iterator[list[str]]:
    """Yields the lines in lists that are short enough for a message each."""
    some: list[str] = []
    size = 0
    for line in lines:
        if some and size + len(line) >= _AT_ONCE:
            yield some
            some, size = [], 0
        some.append(line)
        size += len(line) + 1
    if some:
        yield some


def part(items: Sequence[T], share: Sequence[int]) -> list[T]:
    """Returns one of n nearly equal parts; with fewer items than parts, parts share items.

    Args:
      items: the items to divide.
      share: (i, n), the index of the part and the number of parts.
    """
    i, n = share
    if items and len(items) < n:
        return [items[i % len(items)]]
    return list(items[i * len(items) // n : (i + 1) * len(items) // n])


def _with_gpus(env: dict[str, str], order: Message) -> dict[str, str]:
    visible = env.get("CUDA_VISIBLE_DEVICES")
    there = visible.split(",") if visible else gpus_here() if visible is None else []
    if order["gpus"] is not None:
        # GPU numbers index the GPUs that are visible in the host's environment.
        numbers = [there[n] if visible and n < len(there) else str(n) for n in order["gpus"]]
        env["CUDA_VISIBLE_DEVICES"] = ",".join(numbers)
    elif order["share"] is not None and there:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(part(there, order["share"]))
    return env


def gpus_here() -> list[str]:
    """Returns the numbers of this host's GPUs."""
    try:
        return [str(n) for n in range(len(os.listdir("/proc/driver/nvidia/gpus")))]
    except OSError:
        return []


def _spawn(
    argv: list[str], cwd: str, env: dict[str, str], share: Optional[Sequence[int]]
) -> "subprocess.Popen[bytes]":
    if not os.path.isdir(cwd):
        raise OSError(f"{cwd} does not exist; make it, or name another with --workdir")
    cores = part(sorted(os.sched_getaffinity(0)), share) if share else None
    agent = os.getpid()

    def prepare() -> None:
        processes.die_with(agent)
        if cores:
            os.sched_setaffinity(0, cores)

    try:
        return subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=prepare,
        )
    except FileNotFoundError:
        raise OSError(
            f"{argv[0]} does not exist; choose the training's Python with --python"
        ) from None
    except PermissionError:
        raise OSError(f"{argv[0]} cannot be run: permission denied") from None
    except subprocess.SubprocessError:  # `prepare` failed
        raise OSError(
            f"{argv[0]} cannot be run on the cores {cores}; does this host still have them?"
        ) from None
