"""Runs cifar10_main.py in forks of one process that has loaded TensorFlow and matplotlib once.

A test about what forks have not, see `testbeds.forks`, starts a process of its own with
`tests.cifar10.program`.
"""

import pathlib
import subprocess
import tempfile
from typing import Optional

from testbeds import forks
from testbeds.processes import PROGRAM, environment

_LIMIT_SECS = 240  # time limit of one run


class Forks(forks.Forks):
    """Runs the program as `program.run` does, but in a fork; the caller must call `close`."""

    def run(
        self, *arguments: object, cwd: pathlib.Path, tf_config: Optional[str] = None
    ) -> "subprocess.CompletedProcess[str]":
        """Runs the program to its end in `cwd`, with TF_CONFIG set if `tf_config` is given."""
        variables = {} if tf_config is None else {"TF_CONFIG": tf_config}
        words = list(map(str, (PROGRAM, *arguments)))
        with tempfile.TemporaryDirectory() as name:
            out, err = pathlib.Path(name, "out"), pathlib.Path(name, "err")
            process = self.start(words, cwd, {**environment(), **variables}, out, err)
            try:
                code = process.wait(_LIMIT_SECS)
            finally:
                process.kill()
                process.wait()
            return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())
