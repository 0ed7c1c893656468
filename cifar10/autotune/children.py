"""Child processes that time training steps: a process for each size of the pool inside ops."""

import dataclasses
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Optional

from cifar10.autotune.candidates import Setting
from cifar10.config import TrainConfig
from cifar10.stopping import StopRequest

_ROOT = pathlib.Path(__file__).parents[2]
_COMMAND = (sys.executable, "-m", "cifar10.autotune.step")
_LOOK_SECS = 0.1  # between looks for a signal


class ChildError(Exception):
    """A child failed, or did not answer in time; the message is its last line."""


class Children:
    """The children that can time `settings`; leaving the context ends them.

    Args:
      config: the run's settings.
      settings: towers and threads to time.
      stop: says whether a signal came.
      limit_secs: how long they may take to get all settings ready, and each to time one.
    """

    def __init__(
        self, config: TrainConfig, settings: Sequence[Setting], stop: StopRequest, limit_secs: float
    ) -> None:
        self._config, self._settings, self._stop = config, settings, stop
        self._limit_secs = limit_secs
        self._by_setting: dict[Setting, _Child] = {}

    def __enter__(self) -> "Children":
        """Starts the children, and returns once each setting has trained a step.

        Raises:
          ChildError: one failed.
          Stopped: a signal came.
        """
        groups: dict[int, list[Setting]] = {}
        for setting in self._settings:
            groups.setdefault(setting.num_intra_threads, []).append(setting)
        try:
            for group in groups.values():
                child = _Child(self._stop)
                self._by_setting.update(dict.fromkeys(group, child))
                child.tell(_as_configs(self._config, group))
            deadline = time.monotonic() + self._limit_secs
            for setting in self._settings:
                self._by_setting[setting].answer(deadline)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._end()

    def step_secs(self, setting: Setting, seconds: float) -> float:
        """Trains for some seconds, one step at least; returns the median seconds of a step.

        Raises:
          ChildError: the child failed.
          Stopped: a signal came.
        """
        child = self._by_setting[setting]
        group = [one for one in self._settings if self._by_setting[one] is child]
        child.tell([group.index(setting), seconds])
        return float(child.answer(time.monotonic() + self._limit_secs))

    def _end(self) -> None:
        for child in set(self._by_setting.values()):
            child.end()


def _as_configs(config: TrainConfig, settings: Sequence[Setting]) -> list[dict[str, Any]]:
    plain = dataclasses.replace(config, log_device_placement=False)
    return [dataclasses.asdict(setting.applied(plain)) for setting in settings]


class _Child:
    """One process. Signals to this process and its terminal do not reach it."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop
        self._unread = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._line, its_line = socket.socketpair()
        self._line.settimeout(_LOOK_SECS)
        with its_line:
            try:
                self._process = subprocess.Popen(
                    _COMMAND,
                    cwd=_ROOT,
                    stdin=its_line.fileno(),
                    stdout=its_line.fileno(),
                    stderr=self._errors,
                    start_new_session=True,
                )
            except OSError as error:
                raise ChildError(str(error)) from error

    def tell(self, order: Any) -> None:
        """Sends an order.

        Raises:
          ChildError: the process has ended.
        """
        try:
            self._line.sendall(json.dumps(order).encode() + b"\n")
        except OSError:
            raise ChildError(self._last_words()) from None

    def answer(self, deadline: float) -> Any:
        """Waits for the next answer until then (`time.monotonic`).

        Raises:
          ChildError: the process has ended, or the time is over.
          Stopped: a signal came.
        """
        while b"\n" not in self._unread:
            self._stop.check()
            if time.monotonic() > deadline:
                raise ChildError("no answer in time")
            self._unread += self._receive()
        line, self._unread = self._unread.split(b"\n", 1)
        return json.loads(line)

    def end(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._line.close()
        self._errors.close()

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
        self._process.kill()  # It may have closed its end and live on.
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip()]
        return said[-1] if said else f"ended with exit code {code}, without a word"
