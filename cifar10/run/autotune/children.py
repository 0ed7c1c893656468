"""Child processes that time training steps, one for each setting."""

import dataclasses
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Optional

from cifar10.config.train_config import TrainConfig
from cifar10.host.signals import StopRequest
from cifar10.run.autotune.last_words import last_words

_ROOT = pathlib.Path(__file__).parents[3]
_COMMAND = (sys.executable, "-m", "cifar10.run.autotune.fork_server")
_LIMIT_SECS = 180.0  # for all settings to train their first step, and for a turn
_LOOK_SECS = 0.1  # between looks for a signal
_END_SECS = 10.0  # for a process that is about to end


class ChildError(Exception):
    """A child failed, or did not answer in time; the message is its last line."""


class Children:
    """Processes that can time steps; leaving the context, once or again, ends them.

    Signals to this process and its terminal do not reach them.

    Args:
      stop: says whether a signal came.

    Raises:
      ChildError: they cannot be started.
    """

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop
        self._unread = b""
        self._begun: Optional[list[dict[str, Any]]] = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._line, its_line = socket.socketpair()
        self._line.settimeout(_LOOK_SECS)
        with its_line:
            try:
                self._server = subprocess.Popen(
                    _COMMAND,
                    cwd=_ROOT,
                    stdin=its_line.fileno(),
                    stdout=its_line.fileno(),
                    stderr=self._errors,
                    start_new_session=True,
                )
            except OSError as error:
                self._close()
                raise ChildError(str(error)) from error

    def __enter__(self) -> "Children":
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        """Ends the processes, whatever they do, and waits until all have gone."""
        if self._errors.closed:
            return
        if self._server.poll() is None:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
        self._wait_for_forks()
        self._close()

    def begin(self, configs: Sequence[TrainConfig]) -> None:
        """Has them prepare these, and does not wait for it; once, before anything else is asked.

        Raises:
          ChildError: they are gone.
        """
        self._begun = _orders(configs)
        self._tell(self._begun)

    def prepare(self, configs: Sequence[TrainConfig]) -> None:
        """Returns once each of these has trained a step; those before them are gone.

        Raises:
          ChildError: one failed.
          Stopped: a signal came.
        """
        orders, begun = _orders(configs), self._begun
        self._begun = None
        if begun is not None:
            self._answer()
        if orders != begun:
            self._tell(orders)
            self._answer()

    def step_secs(self, index: int, seconds: float) -> float:
        """Trains with one of what was prepared for some seconds, one step at least.

        Returns:
          The median seconds of a step.

        Raises:
          ChildError: the child failed.
          Stopped: a signal came.
        """
        self._tell([index, seconds])
        return float(self._answer())

    def _tell(self, order: Any) -> None:
        try:
            self._line.sendall(json.dumps(order).encode() + b"\n")
        except OSError:
            raise ChildError(self._last_words()) from None

    def _answer(self) -> Any:
        deadline = time.monotonic() + _LIMIT_SECS
        while b"\n" not in self._unread:
            self._stop.check()
            if time.monotonic() > deadline:
                raise ChildError("no answer in time")
            self._unread += self._receive()
        line, self._unread = self._unread.split(b"\n", 1)
        answer = json.loads(line)
        if isinstance(answer, dict):
            raise ChildError(answer["error"])
        return answer

    def _receive(self) -> bytes:
        try:
            received = self._line.recv(4096)
        except socket.timeout:
            return b""
        except ConnectionError:
            received = b""
        if not received:
            self._stop.check()
            raise ChildError(self._last_words())
        return received

    def _last_words(self) -> str:
        try:
            code = self._server.wait(_END_SECS)
        except subprocess.TimeoutExpired:
            return "closed its line and lives on"
        return last_words(self._errors, code)

    def _close(self) -> None:
        self._line.close()
        self._errors.close()

    def _wait_for_forks(self) -> None:
        """Forks hold the line, too; without the server they end by themselves."""
        deadline = time.monotonic() + _END_SECS
        while time.monotonic() < deadline:
            try:
                if not self._line.recv(4096):
                    return
            except socket.timeout:
                continue
            except ConnectionError:
                return


def _orders(configs: Sequence[TrainConfig]) -> list[dict[str, Any]]:
    plain = (dataclasses.replace(config, log_device_placement=False) for config in configs)
    return [dataclasses.asdict(config) for config in plain]
