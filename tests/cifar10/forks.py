"""Runs cifar10_main.py, and code, in forks of one process that has loaded TensorFlow once.

A test about what forks have not, see `testbeds.forks`, starts a process of its own with
`tests.cifar10.program`.
"""

import contextlib
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Callable, Optional

from testbeds import forks
from testbeds.processes import PROGRAM, ROOT, environment

_LIMIT_SECS = 240  # time limit of one run
_IN_THE_ROOT = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"


class Running:
    """A program in a fork, and what it has printed so far."""

    def __init__(
        self, words: "list[str]", fork: forks.Fork, out: pathlib.Path, err: pathlib.Path
    ) -> None:
        self._words, self._out, self._err = words, out, err
        self.pid = fork.pid
        self.poll, self.wait, self.send_signal = fork.poll, fork.wait, fork.send_signal
        self.kill = fork.kill

    def wait_until(self, is_true: Callable[["Running"], bool]) -> None:
        """Waits until `is_true` of this is true.

        Raises:
          AssertionError: the program ended first, or the time limit passed.
        """
        deadline = time.monotonic() + _LIMIT_SECS
        while not is_true(self):
            assert self.poll() is None, f"ended with {self.poll()}\n{self.out}\n{self.err}"
            assert time.monotonic() < deadline, f"{self.out}\n{self.err}"
            time.sleep(0.01)

    def completed(self) -> "subprocess.CompletedProcess[str]":
        """Waits for the end."""
        code = self.wait(_LIMIT_SECS)
        return subprocess.CompletedProcess(self._words, code, self.out, self.err)

    def interrupt(self, signum: int) -> tuple[int, str, str]:
        """Sends a signal and waits for the end; returns exit code, standard output and error."""
        self.send_signal(signum)
        return self.wait(_LIMIT_SECS), self.out, self.err

    @property
    def out(self) -> str:
        """What it has printed to standard output."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """What it has printed to standard error."""
        return self._err.read_text()


class Forks(forks.Forks):
    """Runs the program as `program.run` does, but in a fork; the caller must call `close`."""

    def run(
        self,
        *arguments: object,
        cwd: pathlib.Path,
        tf_config: Optional[str] = None,
        program: pathlib.Path = PROGRAM,
    ) -> "subprocess.CompletedProcess[str]":
        """Runs a program to its end in `cwd`, with TF_CONFIG set if `tf_config` is given."""
        variables = {} if tf_config is None else {"TF_CONFIG": tf_config}
        with self._started([program, *arguments], cwd, variables) as running:
            return running.completed()

    def run_code(self, code: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
        """Runs code to its end in the repository's root, as `python -c CODE ARGUMENTS` would."""
        with self.started_code(code, *arguments) as running:
            return running.completed()

    @contextlib.contextmanager
    def started_code(self, code: str, *arguments: object) -> Iterator[Running]:
        """Starts code as `run_code` does; kills it at the end if it still runs."""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(_IN_THE_ROOT + code)
            file.flush()
            with self._started([file.name, *arguments], ROOT, {}) as running:
                yield running

    @contextlib.contextmanager
    def started(self, *arguments: object, cwd: pathlib.Path) -> Iterator[Running]:
        """Starts the program in `cwd`; kills it at the end if it still runs."""
        with self._started([PROGRAM, *arguments], cwd, {}) as running:
            yield running

    @contextlib.contextmanager
    def _started(
        self, words: "list[object]", cwd: pathlib.Path, variables: dict[str, str]
    ) -> Iterator[Running]:
        with tempfile.TemporaryDirectory() as name:
            out, err = pathlib.Path(name, "out"), pathlib.Path(name, "err")
            for path in (out, err):
                path.touch()
            command = list(map(str, words))
            fork = self.start(command, cwd, {**environment(), **variables}, out, err)
            try:
                yield Running(command, fork, out, err)
            finally:
                fork.kill()
                fork.wait()
