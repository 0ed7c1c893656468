"""Runs our programs in forks of one process that has loaded TensorFlow and matplotlib once.

A fork behaves as a process of its own, with these exceptions, so a test about them starts one:

- It starts in milliseconds, and so has no time in which it loads modules.
- Its command line in the process list, and its initial environment there, are the server's.
- Python's hashes have the same seed in all forks of a server.
- TensorFlow's C++ log shows fatal errors only, with --verbose, too.
- Limits, cores and the umask are those that the owner of the server had at the first fork.
"""

import ctypes
import gc
import json
import os
import pathlib
import runpy
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from testbeds.errors import TestbedError
from testbeds.processes import ROOT, environment

# Beginnings of names of variables that Python, TensorFlow and their libraries read while they load.
_READ_BY_LOADING = (
    *("ABSL_", "CUDA_", "DNNL_", "GRPC_", "KMP_", "LANG", "LC_", "LD_", "MALLOC_", "MKL_"),
    *("MPL", "NPY_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHON", "TF_", "TZ", "XLA_"),
)
_READ_LATER = {"TF_CONFIG"}
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Forks:
    """A server that forks; the caller must call `close`, which kills forks that still run.

    The server is started for the first fork. It and its forks also end if this process ends.
    """

    def __init__(self) -> None:
        self._server: Optional[subprocess.Popen[str]] = None
        self._variables: dict[str, str] = {}
        self._orders = 0

    def start(
        self,
        words: Sequence[str],
        cwd: pathlib.Path,
        env: Mapping[str, str],
        out: pathlib.Path,
        err: Optional[pathlib.Path] = None,
    ) -> "Fork":
        """Starts a program, as `python WORDS` would.

        Args:
          words: path of the program, and its arguments.
          cwd: its working folder.
          env: all of its environment.
          out: file to which its standard output is appended.
          err: file to which its standard error is appended; None: `out`.

        Raises:
          TestbedError: `env` differs from the server's in a variable that loading has read, or the
            server has ended.
        """
        if self._server is None:
            self._start_server()
        read = [name for name in sorted({*env, *self._variables}) if self._is_read(name, env)]
        if read:
            raise TestbedError(
                f"a fork cannot have another {', '.join(read)} than the server, which has loaded "
                "TensorFlow; start a process"
            )
        paths = [str(path.absolute()) for path in (cwd, out, err or out)]
        return Fork(self, self._answer([list(words), dict(env), *paths]))

    def reap(self, pid: int) -> int:
        """Returns the exit code of a fork that has ended, or the negative number of its signal."""
        return self._answer(pid)

    def close(self) -> None:
        """Ends the server, and with it all forks."""
        if self._server is not None:
            self._server.communicate()

    def _start_server(self) -> None:
        self._variables = environment()
        self._server = subprocess.Popen(
            [sys.executable, "-c", "from testbeds import forks; forks.serve()"],
            cwd=ROOT,
            env={**self._variables, "TF_CPP_MIN_LOG_LEVEL": "3"},  # as `cifar10.main` sets it
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _is_read(self, name: str, env: Mapping[str, str]) -> bool:
        differs = env.get(name) != self._variables.get(name)
        return differs and name.startswith(_READ_BY_LOADING) and name not in _READ_LATER

    def _answer(self, order: Any) -> int:
        assert self._server is not None
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._orders += 1
        print(json.dumps([self._orders, order]), file=self._server.stdin, flush=True)
        # A test that was interrupted, as by its time limit, may have left an answer unread.
        number, answer = 0, 0
        while number != self._orders:
            line = self._server.stdout.readline()
            if not line:
                raise TestbedError(f"the server that forks has ended, at {order}")
            number, answer = json.loads(line)
        return answer


class Fork:
    """A program in a fork: the part of `subprocess.Popen` that testbeds use.

    Attributes:
      pid: its process id, which is not given to another process before its end has been noticed.
      returncode: None before its end has been noticed; then as in `subprocess.Popen`.
    """

    def __init__(self, forks: Forks, pid: int) -> None:
        self._forks, self.pid = forks, pid
        self.returncode: Optional[int] = None
        self._descriptor = os.pidfd_open(pid)  # readable after its end

    def poll(self) -> Optional[int]:
        """Returns the exit code, or the negative number of a signal; None if it still runs."""
        if self.returncode is None and self._has_ended(0):
            self.returncode = self._forks.reap(self.pid)
            os.close(self._descriptor)
        return self.returncode

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits for the end; returns what `poll` does.

        Args:
          timeout: time limit, in seconds.

        Raises:
          subprocess.TimeoutExpired: it still runs after the time limit.
        """
        if self.returncode is None:
            self._has_ended(None if timeout is None else 1000 * timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, signum: int, /) -> None:
        """Sends a signal, unless the end has come."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, timeout_ms: Optional[float]) -> bool:
        ends = select.poll()
        ends.register(self._descriptor, select.POLLIN)
        return bool(ends.poll(timeout_ms))


def serve() -> None:
    """Forks, or waits for a fork that has ended, for each line of standard input.

    Without threads, a fork is a whole copy: so nothing here starts TensorFlow's, and OpenBLAS ends
    those of its own before a fork.
    """
    # Ctrl-C goes to the forks, too, and the tests still need this process to end them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    before = dict(os.environ)
    import jinja2  # noqa: F401

    import cifar10.train  # noqa: F401
    from cifar10 import (
        main,  # noqa: F401
        report,
    )
    from cifar10.run import evaluator, parameter_server  # noqa: F401

    report.load_figure()
    set_by_loading = dict(os.environ.items() - before.items())
    gc.freeze()
    order = _work()
    if order is not None:  # In a fork.
        words, env, cwd, *outputs = order
        _become(words, {**env, **set_by_loading}, cwd, *outputs)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        # An exception ends it as in a process of its own.
        runpy.run_path(words[0], run_name="__main__")


def _work() -> Optional[list[Any]]:
    """Works off the orders; returns None at their end, and in each fork its own order."""
    server, libc = os.getpid(), ctypes.CDLL(None)
    codes: dict[int, int] = {}  # Whoever was interrupted while it waited for one asks again.
    for line in iter(sys.stdin.readline, ""):
        number, order = json.loads(line)
        if isinstance(order, int):
            if order not in codes:
                codes[order] = os.waitstatus_to_exitcode(os.waitpid(order, 0)[1])
            print(json.dumps([number, codes[order]]), flush=True)
        elif pid := os.fork():
            codes.pop(pid, None)  # that of an earlier process with this id
        else:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != server:  # It ended before.
                os._exit(1)
            print(json.dumps([number, os.getpid()]), flush=True)
            return order
    return None


def _become(words: list[str], env: dict[str, str], cwd: str, out: str, err: str) -> None:
    """Gives this fork what `python WORDS` would have."""
    import numpy as np

    append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    for target, path, how in ((0, os.devnull, os.O_RDONLY), (1, out, append), (2, err, append)):
        opened = os.open(path, how, 0o666)
        os.dup2(opened, target)
        os.close(opened)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = words
    sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
    np.random.seed()  # noqa: NPY002  # In forks, Python seeds its own generator anew by itself.
