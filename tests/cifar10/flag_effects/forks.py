"""Runs of the program, one after the other, in forks of one process: TensorFlow loads once.

    python -m tests.cifar10.flag_effects.forks RUNS

RUNS is JSON: a list of [arguments, folder to work in, file for what it prints]. A run that does not
end with exit code 0 ends this process with its own.
"""

import gc
import json
import os
import sys

# As `cifar10.main` has it, which is too late for what is loaded here.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from cifar10 import main
from cifar10.run import master  # noqa: E402, F401


def run(arguments: list[str], folder: str, log: str) -> int:
    """Runs the program in a fork; returns its exit code."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        os.chdir(folder)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.argv[1:] = arguments
        code = main.main()
        sys.stdout.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    gc.freeze()
    for one in json.loads(sys.argv[1]):
        code_ = run(*one)
        if code_:
            sys.exit(code_)
