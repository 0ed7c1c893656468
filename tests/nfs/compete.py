"""Processes on two NFS mounts compete for a lock; runs in the machine of testbeds/nfs_machine.py.

Prints what happened, a line each. Every process is in a process namespace of its own, so that the
lock takes it for one of another machine.
"""

import subprocess
import sys
import time
from pathlib import Path

from cifar10.host.lock_file import LockFile, LockHeld
from testbeds.nfs_machine import MOUNTS

_ELSEWHERE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
_INCREMENTS = 5


def hold(folder: Path) -> None:
    """Holds the lock until standard input ends."""
    try:
        with LockFile(folder / "lock"):
            print("holds", flush=True)
            sys.stdin.read()
    except LockHeld as holder:
        print(f"refused: {holder}")


def count(folder: Path) -> None:
    """Adds to a number that only the lock protects."""
    left, number = _INCREMENTS, folder / "number"
    while left:
        try:
            with LockFile(folder / "lock"):
                number.write_text(str(int(number.read_text()) + 1))
                left -= 1
        except LockHeld:
            continue
        time.sleep(0.05)  # for the others


def compete(a: Path, b: Path) -> None:
    """Lets processes of both mounts ask for the lock, and prints what they say."""
    first = _start("hold", a)
    print(f"first: {_line(first)}")
    print(f"second: {_line(_start('hold', b))}")
    first.kill()
    first.wait()
    third = _start("hold", b)
    print(f"after a kill: {_line(third)}")
    third.communicate("")
    (a / "number").write_text("0")
    counting = [_start("count", folder) for folder in (a, b, a, b)]
    print(f"exit codes: {[one.wait() for one in counting]}")
    print(f"number: {(b / 'number').read_text()}")
    print(f"left: {sorted(path.name for path in a.iterdir())}")


def _start(what: str, folder: Path) -> "subprocess.Popen[str]":
    words = [*_ELSEWHERE, sys.executable, "-m", "tests.nfs.compete", what, str(folder)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


if __name__ == "__main__":
    if sys.argv[1:]:
        {"hold": hold, "count": count}[sys.argv[1]](Path(sys.argv[2]))
    else:
        compete(*map(Path, MOUNTS))
