"""Runs a task as a process in its own session, and reads its output as lines."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Optional, TypeVar

from launch.agent import processes
from launch.agent.logs import LogWriter, Mask
from launch.agent.protocol import SHOWN, Message
from launch.agent.tcp_ports import PortTaken, why_not

T = TypeVar("T")

_CHUNK = 1 << 16
_LONGEST = 1 << 16  # bytes of a line to wait for; of a longer one, only the beginning is sent
_AT_ONCE = 1 << 16  # characters of a message's lines; JSON has at most twelve bytes for each
_LAST_CHUNKS = 16  # to read of an ended task: a pipe holds 1 MiB, and others may still write
_MAKING_SECS = 10.0  # maximum time until a container runs

# Tells a task that its cores are reserved for it (read by `cifar10/step/devices.py`).
OWN_CORES = "CIFAR10_OWN_CORES"


class Running:
    """A task that has been started.

    Args:
      order: the launcher's message: task, argv, script, cwd, env, gpus, share, port, log, masked,
        last; and contained, true if the process is the client of a container.

    Attributes:
      name: the task's name, such as `worker/0`.
      pid: the process id.
      port: the port on which it listens; None if it needs none.
      fd: the file descriptor of the pipe with the task's output.
      log: the task's log on this host.
      dropped: the number of lines not sent because the launcher was too slow; the log has them.
      signals: the signals that the agent has sent to the task.
      last: whether the task ends after the others, as a ps does.
      asked_to_end: whether the agent has sent SIGTERM to a task with `last`, because the launcher
        is lost.

    Raises:
      OSError: the task cannot be started; the message says why.
    """

    def __init__(self, order: Message) -> None:
        self.name: str = order["task"]
        self.last: bool = order["last"]
        self.dropped = 0
        self.signals: list[int] = []
        self.asked_to_end = False
        self._contained = order.get("contained", False)
        self._has_written = False
        self._began = time.monotonic()
        self._partial = b""  # the line that is not complete yet
        self._is_cut = False  # whether the beginning of that line has been kept already
        pinned = {OWN_CORES: "1"} if order["share"] else {}
        env = {**os.environ, **pinned, **order["env"]}
        try:
            self._mask = Mask(env.get(name, "") for name in order["masked"])
        except UnicodeEncodeError as error:
            raise OSError(
                f"{order['argv'][0]} cannot be run: a variable to pass: {error}"
            ) from None
        self._most_of_a_secret = max(0, self._mask.longest - 1)
        cwd = os.path.expanduser(order["cwd"])
        script = order["script"]
        if script is not None and not os.path.exists(os.path.join(cwd, script)):
            raise OSError(f"{cwd} has no {script}; give the code's folder with --workdir")
        self.port: Optional[int] = order["port"]
        in_use = why_not(self.port) if self.port else None
        if in_use:
            raise PortTaken(in_use)
        self.log = LogWriter(order["log"])
        try:
            self._popen = _spawn(order["argv"], cwd, _with_gpus(env, order), order["share"])
        except OSError:
            self.log.close()
            raise
        self.pid = self._popen.pid
        if self._popen.stdout is None:
            raise OSError("no pipe")
        self.fd = self._popen.stdout.fileno()
        os.set_blocking(self.fd, False)

    def read(self) -> Optional[list[str]]:
        """Returns the complete lines that have arrived; None at the end of the output."""
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return []
        return self._split(data) if data else None

    def finish(self, code: int) -> list[str]:
        """Closes the pipe and the log of a task that has ended, and kills its process group.

        Args:
          code: the exit code, -n for signal n.

        Returns:
          The last lines of the output.
        """
        self._popen.returncode = code
        processes.send(self.pid, 9, group=True)
        lines: list[str] = []
        with contextlib.suppress(BlockingIOError):  # a child process may hold the pipe open
            for _ in range(_LAST_CHUNKS):
                data = os.read(self.fd, _CHUNK)
                if not data:
                    break
                lines += self._split(data)
        if self._partial or self._is_cut:
            lines += self._split(b"\n")
        if self._popen.stdout is not None:
            self._popen.stdout.close()
        self.log.close()
        return lines

    def is_silent(self, secs: float) -> bool:
        """Returns whether this is a container that has written nothing since its start."""
        is_late = time.monotonic() > self._began + secs
        return self._contained and is_late and not self._has_written

    def send(self, signum: int) -> None:
        """Sends a signal to the task's process group; kills a container that is still starting."""
        is_young = time.monotonic() < self._began + _MAKING_SECS
        if self._contained and is_young and not self._has_written:
            # The client ignores a signal while it creates the container. A task that has not
            # written a line yet has nothing to save.
            signum = signal.SIGKILL
        self.signals.append(int(signum))
        processes.send(self.pid, signum, group=True)

    def _split(self, data: bytes) -> list[str]:
        """Writes complete lines to the log, with secrets masked; returns them as text, shortened.

        The log gets every byte. Of a line that is too long to wait for its end, the launcher gets
        only the beginning.
        """
        *lines, self._partial = (self._partial + data).split(b"\n")
        block = self._mask.data(b"".join(line + b"\n" for line in lines))
        shown = block.split(b"\n")[:-1]
        if lines and self._is_cut:
            shown = shown[1:]
            self._is_cut = False
        if len(self._partial) > _LONGEST + self._most_of_a_secret:
            masked = self._mask.data(self._partial)
            # The rest may be the beginning of a secret.
            keep = max(0, len(masked) - self._most_of_a_secret)
            begun, self._partial = masked[:keep], masked[keep:]
            block += begun
            if not self._is_cut:
                shown.append(begun[: 4 * SHOWN])
            self._is_cut = True
        if block:
            self._has_written = True
            self.log.write(block)
        return [line.decode(errors="replace").rstrip("\r")[:SHOWN] for line in shown]


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
    if not items:
        return []
    if len(items) < n:
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
    except ValueError as error:  # a NUL character among the words or variables
        raise OSError(f"{argv[0]} cannot be run: {error}") from None
    except subprocess.SubprocessError:  # `prepare` failed
        raise OSError(
            f"{argv[0]} cannot be run on the cores {cores}; does this host still have them?"
        ) from None
