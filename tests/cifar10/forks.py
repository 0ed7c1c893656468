"""Runs cifar10_main.py in forks of one process that has loaded TensorFlow and matplotlib once.

A test that is about the process itself (signals, what TensorFlow prints while it loads) starts a
process of its own with `tests.cifar10.program`.
"""

import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import traceback
from typing import Callable, Optional

from testbeds.processes import ROOT, environment

_LIMIT_SECS = 240  # time limit of one run


class Forks:
    """Runs the program as `program.run` does, but in a fork; the caller must call `close`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cifar10.forks"],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *arguments: str, cwd: pathlib.Path, tf_config: Optional[str] = None
    ) -> "subprocess.CompletedProcess[str]":
        """Runs the program to its end in `cwd`, with TF_CONFIG set if `tf_config` is given."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as name:
            out, err = pathlib.Path(name, "out"), pathlib.Path(name, "err")
            order = (arguments, str(cwd), tf_config, str(out), str(err))
            print(json.dumps(order), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
            assert answer, f"the process that forks has ended, at {arguments}"
            return subprocess.CompletedProcess(
                arguments, int(answer), out.read_text(), err.read_text()
            )

    def close(self) -> None:
        """Ends the process that forks."""
        self._process.communicate()


def _run(
    main: Callable[[], int],
    arguments: list[str],
    folder: str,
    tf_config: Optional[str],
    out: str,
    err: str,
) -> int:
    """Runs the program in a fork; returns its exit code, or the negative number of its signal."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        signal.alarm(_LIMIT_SECS)
        os.chdir(folder)
        if tf_config is not None:
            os.environ["TF_CONFIG"] = tf_config
        for path, descriptor in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
        sys.argv[1:] = arguments
        code = main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _serve() -> None:
    """Runs the program for each line of standard input, and writes its exit code as a line."""
    # `cifar10.main` sets it, too, but only after TensorFlow has been loaded here.
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    from cifar10 import main
    from cifar10.output import report
    from cifar10.run import master  # noqa: F401

    report.load()
    gc.freeze()
    for line in sys.stdin:
        print(_run(main.main, *json.loads(line)), flush=True)


if __name__ == "__main__":
    _serve()
