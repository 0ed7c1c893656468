"""One process at a time holds a lock, and a dead process's lock is free."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cifar10.host import lock_file
from cifar10.host.lock_file import LockHeld, hold
from testbeds.processes import ROOT
from tests import failing_disk

HOLD = """
import sys
from pathlib import Path
from cifar10.host import lock_file

with lock_file.hold(Path(sys.argv[1]), print, lambda: None):
    print("holds", flush=True)
    sys.stdin.read()
"""
# Takes the lock and counts up without any other protection, as often as told.
COUNT = """
import sys, time
from pathlib import Path
from cifar10.host import lock_file

path, number = Path(sys.argv[1]), Path(sys.argv[2])
left = int(sys.argv[3])
while left:
    try:
        with lock_file.hold(path, print, lambda: None):
            before = int(number.read_text())
            time.sleep(0.001)
            number.write_text(str(before + 1))
            left -= 1
    except lock_file.LockHeld:
        pass
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".training.lock"


@pytest.fixture
def holder(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds the lock until its standard input is closed."""
    words = [sys.executable, "-c", HOLD, str(path)]
    process = subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times short enough to see their ends."""
    monkeypatch.setattr(lock_file, "_ENDING_SECS", 0.3)
    monkeypatch.setattr(lock_file, "_LEASE_SECS", 0.6)
    monkeypatch.setattr(lock_file, "_POLL_SECS", 0.02)


def nothing() -> None:
    """Stands for a check that finds nothing."""


def test_the_holder_is_named_and_its_end_frees_the_lock(path, holder, quick):
    words = f"^process {holder.pid} on .+, which started 20"
    with pytest.raises(LockHeld, match=words), hold(path, pytest.fail, nothing):
        pass
    holder.communicate("")
    assert not path.exists()
    with hold(path, pytest.fail, nothing) as is_ours:
        assert is_ours()
    assert list(path.parent.iterdir()) == []


def test_the_lock_of_a_killed_process_is_free_at_once(path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert path.exists()
    with hold(path, pytest.fail, nothing) as is_ours:
        assert is_ours()
        assert f"process {holder.pid} " not in path.read_text()


def test_a_process_elsewhere_is_waited_for_as_long_as_its_server_keeps_its_lock(path, quick):
    said: list[str] = []
    with hold(path, pytest.fail, nothing):
        path.write_text("process 4 on node7, which started once")
        with (
            pytest.raises(LockHeld, match="^process 4 on node7, "),
            hold(path, said.append, nothing),
        ):
            pass
    waits = "waiting 0.6 s at most for process 4 on node7, which started once, which uses"
    assert said == [f"{waits} {path.parent}"]


def test_a_process_of_this_name_on_another_machine_is_elsewhere(path, quick):
    said: list[str] = []
    with hold(path, pytest.fail, nothing):
        words = lock_file.this_process()
        path.write_text(f"{words}\n2cb2b1cf-0a5d-4b6e-9d0e-6a3f5a1c7e11\n")
        with pytest.raises(LockHeld) as held, hold(path, said.append, nothing):
            pass
    assert str(held.value) == words
    assert said == [f"waiting 0.6 s at most for {words}, which uses {path.parent}"]


@pytest.mark.parametrize(
    ("module", "call"), [(os, "open"), (fcntl, "flock"), (os, "fstat"), (os, "stat")]
)
def test_a_file_that_a_host_of_nfs_has_removed_is_opened_again(
    path, quick, monkeypatch, module, call
):
    does, stale = getattr(module, call), [OSError(errno.ESTALE, os.strerror(errno.ESTALE))]

    def once_stale(*arguments, **settings):
        if stale:
            raise stale.pop()
        return does(*arguments, **settings)

    monkeypatch.setattr(module, call, once_stale)
    with hold(path, pytest.fail, nothing) as is_ours:
        assert not stale
        assert is_ours()
        stale.append(OSError(errno.ESTALE, "Stale file handle"))
        if module is os and call != "open":
            assert not is_ours()
        stale.clear()


def test_an_owner_whose_file_was_removed_or_replaced_is_told(path):
    with hold(path, pytest.fail, nothing) as is_ours:
        path.unlink()
        assert not is_ours()
        path.touch()
        assert not is_ours()
    assert path.exists()


def test_a_signal_ends_the_wait(path, holder):
    def check() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), hold(path, pytest.fail, check):
        pass


def test_processes_that_compete_never_hold_the_lock_together(path, tmp_path):
    """Every process adds 40 to a number that only the lock protects, and one is killed each time
    that it holds the lock."""
    number = tmp_path / "number"
    number.write_text("0")
    words = [sys.executable, "-c", COUNT, str(path), str(number), "40"]
    counters = [subprocess.Popen(words, cwd=ROOT) for _ in range(4)]
    dies = HOLD.replace("sys.stdin.read()", "import os; os._exit(1)")
    try:
        for _ in range(3):
            killed = subprocess.run(
                [sys.executable, "-c", dies, str(path)],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
            assert killed.returncode != 0
        assert [one.wait() for one in counters] == [0] * 4
    finally:
        for one in counters:
            one.kill()
            one.wait()
    assert number.read_text() == "160"


def test_a_full_disk_keeps_no_file(small_disk):
    failing_disk.fill(small_disk)
    path = small_disk / ".training.lock"
    with pytest.raises(OSError, match="No space left"), hold(path, pytest.fail, nothing):
        pass
    assert [one.name for one in small_disk.iterdir()] == ["filler"]
