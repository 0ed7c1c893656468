"""A connection to an agent: a child process, and threads that read from it and write to it.

A short command on the host reads the agent's modules from standard input. The host needs nothing
but Python. The command line needs no quoting beyond its own: its only variable parts are the Python
command and the run's id, which contain no characters special to a shell.
"""

import contextlib
import errno
import importlib.resources
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import IO, Optional, Union

from launch.agent.processes import AGENT_WORD
from launch.agent.protocol import MAGIC, Message, encode, read_event
from launch.cluster.model import Host
from launch.errors import HostError

_OPEN_SECS = 30.0
LEASE_SECS = 30.0  # of silence, after which a connection without a run may be given up

# Orders that ask -> the event that answers.
_ANSWERS = {"begin": "ready", "probe": "probed", "check": "checked", "reap": "reaped"}

# Imports the agent's modules from SOURCES: name -> source, which is empty for a package.
_LOADER = """\
import sys
if sys.version_info < (3, 9):
    sys.exit("the agent needs Python 3.9 or newer, here is " + sys.version.split()[0])
from importlib.machinery import ModuleSpec
class Sources:
    create_module = staticmethod(lambda spec: None)
    def find_spec(self, name, path=None, target=None):
        if name in SOURCES:
            return ModuleSpec(name, self, is_package=not SOURCES[name])
    def exec_module(self, module):
        exec(compile(SOURCES[module.__name__], module.__name__, "exec"), module.__dict__)
sys.meta_path.insert(0, Sources())
from launch.agent.main import run
run(sys.argv[-1])
"""
_FIRST = "import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"

_MOST_BEFORE = 1000  # lines that a login shell may print before the agent's greeting
_LONGEST = 1 << 20  # bytes of a message; an agent's longest ones have a task's lines
_CHUNK = 1 << 16
_LAST_WORDS = 4000  # bytes of standard error that are kept
_END_SECS = 5.0  # for a process that has closed its output
_UNREAD = 8  # answers; an agent sends one for each order that asks for one
_ERRORS_SECS = 0.5  # for standard error, which a process in the background may hold open


def agent_command(python: str, run_id: str) -> list[str]:
    """Returns the command that starts an agent; it reads `payload` from its standard input.

    With -I and -S, no code of the user or the site runs first, and Python starts faster.

    Args:
      python: the command or path of a Python 3.9 or newer.
      run_id: the id of the run, which process lists then show.
    """
    return [python, "-I", "-S", "-c", _FIRST, AGENT_WORD, run_id]


@lru_cache(maxsize=1)
def payload() -> bytes:
    """Returns the source of the agent, after a line with its length in bytes."""
    sources = {"launch": "", "launch.agent": ""}
    for path in importlib.resources.files("launch.agent").iterdir():
        # An editor's lock, `.#main.py`, is none.
        if path.name.endswith(".py") and path.name[0] != "." and path.name != "__init__.py":
            sources[f"launch.agent.{path.name[:-3]}"] = path.read_text("utf-8")
    code = f"SOURCES = {sources!r}\n{_LOADER}".encode()
    return b"%d\n%s" % (len(code), code)


@dataclass(frozen=True)
class Transport:
    """Describes how a backend reaches an agent.

    Attributes:
      command: a function of (host, command that starts an agent, the same command as a line for a
        login shell, seconds of silence that the connection is to outlast) that returns the
        command to run on this machine.
      explain: a function of (host, exit code, standard error) that returns why the connection
        ended, with a hint what to do.
    """

    command: Callable[[Host, Sequence[str], str, float], list[str]]
    explain: Callable[[Host, int, str], str]

    def link(
        self,
        host: Host,
        run_id: str,
        hear: "Callable[[Link, Message], None]",
        lease_secs: float = LEASE_SECS,
    ) -> "Link":
        """Starts an agent on a host; returns the connection, which `Link.ask` awaits."""
        words = agent_command(host.agent_python, run_id)
        # The same command as one line that any login shell understands.
        line = f"exec {host.agent_python} -I -S -c '{_FIRST}' {AGENT_WORD} {run_id}"
        command = self.command(host, words, line, lease_secs)
        return Link(host.name, command, partial(self.explain, host), hear)


class Link:
    """A connection to a host's agent.

    Args:
      name: the host's name.
      command: the command that starts the agent, through ssh for another host.
      explain: a function of (exit code, standard error) that returns why the connection ended,
        with a hint what to do.
      hear: a function that the reading thread calls with this link and each message except answers
        and heartbeats; the last message is `{"event": "lost"}`.

    Attributes:
      heard: the time of the last message, by time.monotonic.

    Raises:
      HostError: the command could not be started.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        explain: Callable[[int, str], str],
        hear: "Callable[[Link, Message], None]",
    ) -> None:
        self.heard = time.monotonic()
        self._name, self._explain, self._hear = name, explain, hear
        self._answers: queue.Queue[Optional[Message]] = queue.Queue(_UNREAD)  # None: it has ended
        self._greeted = threading.Event()  # or has ended
        self._wrong = ""  # what the host has sent that is no message
        self._code = 0  # the exit code
        self._errors = b""  # the end of standard error
        self._to_write: queue.SimpleQueue[Optional[bytes]] = queue.SimpleQueue()
        self._to_write.put(payload())
        self._process = start(name, command)
        self._threads = [
            threading.Thread(target=work, args=(self._process,), daemon=True)
            for work in (self._read, self._write)
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, order: Message, timeout_secs: float = _OPEN_SECS) -> Message:
        """Sends an order that asks; returns the answer.

        Args:
          order: the order.
          timeout_secs: the seconds that an agent has to answer once it has begun.

        Raises:
          HostError: no answer came in time; the message begins with the host's name, and says why.
        """
        self.send(order)
        if not self._greeted.wait(_OPEN_SECS):
            timeout_secs = _OPEN_SECS
        try:
            answer = self._answers.get(self._greeted.is_set(), timeout_secs)
        except queue.Empty:
            self.kill()
            raise HostError(f"{self._name}: no answer within {timeout_secs:g} s") from None
        if answer is None:
            raise HostError(f"{self._name}: {self.why()}")
        if answer["event"] != _ANSWERS[order["do"]]:
            raise HostError(f"{self._name}: its agent answered {answer['event']} to {order['do']}")
        return answer

    def send(self, message: Message) -> None:
        """Queues a message; never waits for the host to read it."""
        self._to_write.put(encode(message))

    def why(self) -> str:
        """Returns why the connection ended, by the process's exit code and standard error."""
        errors = self._errors.decode(errors="replace").strip()
        return self._wrong or self._explain(self._code, errors)

    def kill(self) -> None:
        """Ends the connection at once, and so its threads."""
        self._process.kill()
        self._to_write.put(None)

    def hang_up(self) -> None:
        """Closes standard input once what is queued is written, and waits for nothing."""
        self._to_write.put(None)

    def close(self, patience_secs: float) -> None:
        """Writes what is queued, closes standard input, and kills the process if it stays.

        Args:
          patience_secs: the seconds that the process has to end before it is killed.
        """
        self.hang_up()
        try:
            self._process.wait(patience_secs)
        except subprocess.TimeoutExpired:
            self._process.kill()
        for thread in self._threads:
            thread.join(_END_SECS)

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        errors = threading.Thread(target=self._read_errors, args=(process,), daemon=True)
        errors.start()
        with process.stdout:
            self._read_messages(process.stdout)
            if self._wrong:
                process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._code = process.wait(_END_SECS)
            errors.join(_ERRORS_SECS)
        self._take_answer(None)
        self._hear(self, {"event": "lost"})

    def _read_errors(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None
        with process.stderr as pipe:
            while data := os.read(pipe.fileno(), _CHUNK):
                self._errors = (self._errors + data)[-_LAST_WORDS:]

    def _read_messages(self, stream: IO[bytes]) -> None:
        """Hears the agent's messages, after what a login shell prints up to the greeting."""
        for _ in range(_MOST_BEFORE):
            line = stream.readline(_CHUNK)
            if not line or line.endswith(MAGIC):
                break
        else:
            self._wrong = f"it printed much instead of starting an agent, at last {line[:60]!r}"
        self._greeted.set()
        while not self._wrong and (line := stream.readline(_LONGEST)):
            self.heard = time.monotonic()
            message = read_event(line) if line.endswith(b"\n") else None
            if message is None:
                if line.endswith(b"\n") or len(line) == _LONGEST:  # else its end was cut off
                    self._wrong = f"it sent what is no message of an agent: {line[:60]!r}"
                return
            if message["event"] in _ANSWERS.values():
                self._take_answer(message)
            elif message["event"] != "beat":  # `heard` has told of it
                self._hear(self, message)

    def _take_answer(self, answer: Optional[Message]) -> None:
        with contextlib.suppress(queue.Full):  # of an agent that sends more than it is asked
            self._answers.put_nowait(answer)

    def _write(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        # `_read` reports the end of the connection.
        with contextlib.suppress(OSError), process.stdin:
            while (data := self._to_write.get()) is not None:
                process.stdin.write(data)
                process.stdin.flush()


def end(links: Collection[Link], patience_secs: float) -> None:
    """Ends the agents of connections, and closes these; kills those that stay.

    Args:
      links: the connections, each to another agent.
      patience_secs: the seconds that all agents together have to end.
    """
    for link in links:
        link.send({"do": "end"})
    deadline = time.monotonic() + patience_secs
    for link in links:
        link.close(max(0.0, deadline - time.monotonic()))


def start(
    name: str,
    command: Sequence[str],
    *,
    given: Union[int, IO[bytes], None] = subprocess.PIPE,
    errors: Optional[int] = subprocess.PIPE,
) -> "subprocess.Popen[bytes]":
    """Starts a command with pipes for its streams, or with others for its input and errors.

    In a session of its own, Ctrl-C does not reach the process, and ssh has no terminal on which to
    ask for a password.

    Raises:
      HostError: it could not be started; the message begins with `name`, the host's, and says why.
    """
    try:
        return subprocess.Popen(
            command, stdin=given, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    except OSError as error:
        hints = {errno.ENOENT: "; is it installed?", errno.EMFILE: "; raise `ulimit -n`"}
        hint = hints.get(error.errno or 0, "")
        raise HostError(f"{name}: {command[0]}: {error.strerror}{hint}") from None
