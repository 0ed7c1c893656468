"""Runs a task as a process in its own session; a thread reads its output."""

import glob
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Optional

from launch.agent import processes
from launch.agent.protocol import SHOWN, Message
from launch.agent.tcp_ports import listen

# A line and a read have 128 KiB, of which JSON makes six bytes each: less than `Link` reads.
_CHUNK = 1 << 16
_LONGEST = 1 << 16  # bytes of a line; what follows is left out
_KEPT = 12  # the last lines of those that were not sent
_REST_SECS = 0.5  # for the rest of an ended task's output, which another process may hold open
_SHORTEST = 6  # characters; shorter parts would mask much that is no secret

# Tells a task that its cores are reserved for it (read by `cifar10/step/devices.py`).
OWN_CORES = "CIFAR10_OWN_CORES"

Send = Callable[..., bool]  # takes a message; with `droppable`, returns False if it was dropped


class Mask:
    """Replaces values by `***`.

    Output comes line by line, so each line of a value, such as a key, is masked by itself: those of
    at least six characters, without the space around them.

    Args:
      values: the values to mask.

    Attributes:
      longest: the characters of the longest part that is masked; 0 if there is none.
    """

    def __init__(self, values: Iterable[str]) -> None:
        lines = {line.strip() for value in values for line in value.split("\n")}
        # Longer ones first: a shorter one may be a part of a longer one.
        self._parts = sorted((line for line in lines if len(line) >= _SHORTEST), key=len)[::-1]
        self.longest = max(map(len, self._parts), default=0)

    def text(self, text: str) -> str:
        """Returns text with the values masked."""
        for part in self._parts:
            text = text.replace(part, "***")
        return text


class TaskProcess:
    """A task that has been started.

    Args:
      order: the launcher's message: task, argv, cwd, env, gpus, share, port, masked, last;
        script, a file that cwd must have; and contained, true if the process is the client of a
        container.
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
        self._has_written = self._is_over = False
        # Of the lines not sent because the launcher was too slow: the number, and the last ones.
        self._dropped: tuple[int, list[str]] = (0, [])
        cwd, script = os.path.expanduser(order["cwd"]), order.get("script")
        if script and os.path.isdir(cwd) and not os.path.exists(os.path.join(cwd, script)):
            raise OSError(f"{cwd} has no {script}; give its folder with --workdir")
        if self.port is not None:
            listen(self.port).close()  # says what is wrong with it
        pinned = {OWN_CORES: "1"} if order["share"] else {}
        env = _with_gpus({**os.environ, **pinned, **order["env"]}, order)
        self._mask = Mask(env.get(name, "") for name in order["masked"])
        self._popen = _spawn(order["argv"], cwd, env, order["share"])
        self.pid = self._popen.pid
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            with self._popen:
                self.kill_group()
            raise OSError(f"its output cannot be read: {error}; see ulimit -u") from None

    def poll(self) -> Optional[int]:
        """Returns the exit code, -n for signal n; None while the process runs."""
        return self._popen.poll()

    def kill_group(self) -> None:
        """Ends what the task has left in its process group."""
        processes.send(-self.pid, signal.SIGKILL)

    def finish(self) -> None:
        """Waits a moment for the rest of an ended task's output; later output is left out."""
        self._thread.join(_REST_SECS)
        self._is_over = True
        count, kept = self._dropped
        if count:
            fields = {"task": self.name, "lines": kept, "dropped": count - len(kept)}
            self._send({"event": "lines", **fields})

    def send(self, signum: int) -> None:
        """Sends a signal to the task's process group.

        The client of a container ignores it while it creates the container. A container that has
        not written a line yet has nothing to save, so it is killed.
        """
        if self._contained and not self._has_written:
            signum = signal.SIGKILL
        self.signals.append(int(signum))
        processes.send(-self.pid, signum)

    def _pass_on(self) -> None:
        """Sends the lines of the output, with secrets masked."""
        rest = b""
        assert self._popen.stdout is not None
        with self._popen.stdout as pipe:
            while (data := os.read(pipe.fileno(), _CHUNK)) and not self._is_over:
                *lines, rest = (rest + data).split(b"\n")
                rest = rest[:_LONGEST]
                self._take(lines)
        if rest and not self._is_over:
            self._take([rest])

    def _take(self, lines: list[bytes]) -> None:
        self._has_written = self._has_written or bool(lines)
        shown = [part for line in lines for part in self._shown(line)]
        if shown:
            count, kept = self._dropped
            fields = {"task": self.name, "lines": shown, "dropped": count}
            is_sent = self._send({"event": "lines", **fields}, droppable=True)
            self._dropped = (0, []) if is_sent else (count + len(shown), [*kept, *shown][-_KEPT:])

    def _shown(self, line: bytes) -> list[str]:
        text = self._mask.text(os.fsdecode(line[:_LONGEST]).rstrip("\r"))
        if len(line) >= _LONGEST:  # it may end within a value
            text = text[: len(text) - self._mask.longest]
        return [text[at : at + SHOWN] for at in range(0, len(text) or 1, SHOWN)]


def part(items: Sequence[Any], share: Sequence[int]) -> list[Any]:
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
    return [str(n) for n in range(len(glob.glob("/proc/driver/nvidia/gpus/*")))]


def _spawn(
    argv: list[str], cwd: str, env: dict[str, str], share: Optional[Sequence[int]]
) -> "subprocess.Popen[bytes]":
    cores = part(sorted(os.sched_getaffinity(0)), share) if share else None
    pin = partial(os.sched_setaffinity, 0, cores) if cores else None
    streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    try:
        return processes.start_child(argv, pin, cwd=cwd, env=env, **streams)
    except FileNotFoundError as error:  # the folder or the Python
        hint = "make it, or name another with --workdir or --python"
        raise OSError(f"{error.filename} does not exist; {hint}") from None
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # Also a NUL, or half a character, among the words or variables; or `prepare` failed.
        raise OSError(f"{argv[0]} cannot be run: {error}") from None
