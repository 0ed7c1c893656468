"""One process at a time holds a lock, and a dead process's lock is taken over."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cifar10.host import lock_file
from cifar10.host.lock_file import LockFile, LockHeld
from testbeds.process_list import stop_process
from tests import failing_disk
from tests.cifar10.program import ROOT

HOLD = """
import sys
from pathlib import Path
from cifar10.host.lock_file import LockFile

with LockFile(Path(sys.argv[1])):
    print("holds", flush=True)
    sys.stdin.read()
"""
# Takes the lock and counts up without any other protection, as often as told.
COUNT = """
import sys, time
from pathlib import Path
from cifar10.host.lock_file import LockFile, LockHeld

path, number = Path(sys.argv[1]), Path(sys.argv[2])
left = int(sys.argv[3])
while left:
    try:
        with LockFile(path):
            before = int(number.read_text())
            time.sleep(0.001)
            number.write_text(str(before + 1))
            left -= 1
    except LockHeld:
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
    monkeypatch.setattr(lock_file, "STALE_SECS", 1.0)
    monkeypatch.setattr(lock_file, "_RENEW_SECS", 0.1)
    monkeypatch.setattr(lock_file, "_ENDING_SECS", 0.3)
    monkeypatch.setattr(lock_file, "_POLL_SECS", 0.02)


def change(path: Path, **fields: Any) -> None:
    """Changes fields of a lock file, as if another process had written it."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def no_file_but(path: Path) -> bool:
    return [one.name for one in path.parent.iterdir()] in ([], [path.name])


def test_the_holder_is_named_and_its_end_frees_the_lock(path, holder, quick):
    with pytest.raises(LockHeld, match=f"^process {holder.pid} on .+, which started 20"):
        LockFile(path).__enter__()
    assert no_file_but(path)
    holder.communicate("")
    assert not path.exists()
    with LockFile(path) as lock:
        assert lock.is_ours()
    assert list(path.parent.iterdir()) == []


def test_the_lock_of_a_killed_process_is_taken_over_at_once(path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert path.exists()
    with LockFile(path, say=pytest.fail) as lock:
        assert lock.is_ours()
        assert no_file_but(path)


def test_a_process_that_is_stopped_still_holds_the_lock(path, holder, quick):
    holder.send_signal(signal.SIGSTOP)
    with pytest.raises(LockHeld):
        LockFile(path).__enter__()


def test_another_process_with_the_number_of_the_dead_one_does_not_hold_the_lock(path, holder):
    change(path, start_ticks=1)
    with LockFile(path, say=pytest.fail):
        pass


def test_a_process_elsewhere_holds_the_lock_as_long_as_it_renews_it(path, quick, monkeypatch):
    monkeypatch.setattr(lock_file, "STALE_SECS", 600.0)
    with LockFile(path) as first:
        change(path, machine="another", host="node7", pid=4)
        said: list[str] = []
        with pytest.raises(LockHeld, match="^process 4 on node7, "):
            LockFile(path, said.append).__enter__()
        assert said == [
            f"waiting 600 s at most to see whether process 4 on node7 still uses {path.parent}"
        ]
        assert first.is_ours()


def test_a_process_elsewhere_that_is_silent_loses_the_lock_and_notices(path, holder, quick):
    stop_process(holder.pid)
    change(path, machine="another")
    said: list[str] = []
    with LockFile(path, said.append) as lock:
        assert lock.is_ours()
        assert len(said) == 1
        holder.send_signal(signal.SIGCONT)
        holder.communicate("")  # Its end leaves the new owner's lock alone.
        assert lock.is_ours()


def test_an_owner_whose_lock_was_taken_over_is_told(path):
    with LockFile(path) as lock:
        assert lock.is_ours()
        change(path, token="another")
        assert not lock.is_ours()
    assert path.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "null", "[" * 100_000])
def test_a_file_that_nobody_wrote_is_taken_over_after_the_wait(path, quick, content):
    path.write_text(content)
    with LockFile(path) as lock:
        assert lock.is_ours()


@pytest.mark.parametrize("changed", [{"pid": "1\0"}, {"pid": "../1"}, {"machine": []}])
def test_a_file_with_a_field_of_another_type_is_nobodys(path, holder, quick, changed):
    change(path, **changed)
    with LockFile(path) as lock:
        assert lock.is_ours()


def test_a_signal_ends_the_wait(path, holder, quick):
    change(path, machine="another")

    def check() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LockFile(path, check=check).__enter__()
    assert no_file_but(path)


def test_a_lock_that_nfs_calls_stale_is_read_again(path, monkeypatch):
    """NFS does so if another machine replaced the file while this one opened it."""
    stale = [1, 1]

    def on_nfs(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Path, *arguments: Any, **settings: Any) -> Any:
            if self == path and stale:
                stale.pop()
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return real(self, *arguments, **settings)

        return call

    with LockFile(path) as lock:
        monkeypatch.setattr(Path, "read_bytes", on_nfs(Path.read_bytes))
        assert lock.is_ours()
        assert stale == []
        monkeypatch.setattr(Path, "open", on_nfs(Path.open))
        stale[:] = [1]
        assert lock_file._modified(path) == path.stat().st_mtime_ns
        owner = lock_file._read(path)
        assert owner is not None
        monkeypatch.setattr(Path, "rename", on_nfs(Path.rename))
        monkeypatch.setattr(lock_file, "_read", lambda path: owner)
        stale[:] = [1]
        lock._remove_lock_of(owner)
        assert lock.is_ours()


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_file_systems_without_links_are_locked_too(path, quick, monkeypatch, number):
    def link(*paths: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    with LockFile(path) as lock:
        assert lock.is_ours()
        with pytest.raises(LockHeld):
            LockFile(path).__enter__()
    assert list(path.parent.iterdir()) == []


def test_processes_that_compete_never_hold_the_lock_together(path, tmp_path):
    """Every process adds 40 to a number that only the lock protects, and one is killed each time
    that it holds the lock."""
    number = tmp_path / "number"
    number.write_text("0")
    words = [sys.executable, "-c", COUNT, str(path), str(number), "40"]
    counters = [subprocess.Popen(words, cwd=ROOT) for _ in range(6)]
    try:
        for _ in range(5):
            killed = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    HOLD.replace("sys.stdin.read()", "import os; os._exit(1)"),
                    str(path),
                ],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            assert killed.wait() != 0
        assert [one.wait() for one in counters] == [0] * 6
    finally:
        for one in counters:
            one.kill()
            one.wait()
    assert number.read_text() == "240"


@pytest.mark.parametrize("has_links", [True, False])
def test_a_full_disk_gets_no_file_of_each_attempt(small_disk, monkeypatch, has_links):
    if not has_links:

        def link(*_: Any) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", link)
        # The first file of an attempt is written, as if the disk filled up after it.
        monkeypatch.setattr(Path, "write_text", lambda path, _: path.touch())
    failing_disk.fill(small_disk)
    with pytest.raises(OSError, match="No space left"), LockFile(small_disk / ".training.lock"):
        pass
    assert [one.name for one in small_disk.iterdir()] == ["filler"]
