"""A folder that one run writes to is closed to the others, whichever flag names it."""

import errno
import fcntl
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
import tensorflow.compat.v1 as tf

from cifar10.errors import TrainingError, UserError
from cifar10.guard import folder_lock
from cifar10.guard.folder_lock import EVALUATOR, TRAINING, hold, hold_worker, is_held
from tests.unprivileged import open_folder, unprivileged


def nothing() -> None:
    """Stands for a check that finds nothing."""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the folders a, b and logs; a lock is waited for shortly."""
    monkeypatch.setattr(folder_lock, "_ENDING_SECS", 0.1)
    monkeypatch.setattr(folder_lock, "_LOST_SECS", 0.1)
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "logs"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("output", "log", "refused", "flag"),
    [
        ("a", "b", "a", "--output-dir"),
        ("b", "logs", "logs", "--log-dir"),
        ("b", "a", "a", "--log-dir"),
        ("logs", "logs", "logs", "--output-dir"),
    ],
)
def test_a_folder_of_another_run_is_refused(
    folders: Path, output: str, log: str, refused: str, flag: str
) -> None:
    with hold("a", "logs", TRAINING, nothing):
        with pytest.raises(UserError) as refusal, hold(output, log, TRAINING, nothing):
            pass
        words = str(refusal.value)
        assert words.startswith(f"{refused} is used by another training: process ")
        assert words.endswith(f"; wait until it has ended, or name another {flag}")
        assert sorted(folders.glob("*/.*.lock*")) == [
            folders / "a/.training.lock",
            folders / "logs/.training.lock",
        ]
    assert not list(folders.glob("*/.*.lock*"))


def test_an_evaluator_and_a_training_share_their_folders(folders: Path) -> None:
    with hold("a", "logs", TRAINING, nothing):
        assert not is_held("a", EVALUATOR)
        with hold("a", "logs", EVALUATOR, nothing):
            assert is_held("a", EVALUATOR)
            locks = [".evaluator.lock", ".training.lock"]
            assert sorted(path.name for path in (folders / "logs").iterdir()) == locks
        assert not is_held("a", EVALUATOR)


def test_a_lock_that_is_a_link_is_not_followed(folders: Path) -> None:
    (folders / "precious").write_text("all")
    (folders / "logs/.training.lock").symlink_to(folders / "precious")
    with (
        pytest.raises(UserError, match=r"^logs/\.training\.lock is a link, .*; remove it$"),
        hold("a", "logs", TRAINING, nothing),
    ):
        pass
    assert (folders / "precious").read_text() == "all"


def test_in_an_object_store_the_newest_name_counts(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tf.io.gfile.makedirs("ram://a")
    with hold("ram://a", "ram://a", TRAINING, nothing) as check_first:
        check_first()
        assert capsys.readouterr().out == ""
        tf.io.gfile.remove("ram://a/.training.lock")
        with tf.io.gfile.GFile("ram://a/.training.lock", "w") as file:
            file.write("process 4 on node7, which started once\n")
        with hold("ram://a", "logs", TRAINING, nothing) as check_second:
            check_second()
            assert capsys.readouterr().out == (
                "note: ram://a was used by process 4 on node7, which started once; if that still "
                "runs, its next save ends it\n"
            )
        with pytest.raises(TrainingError, match="^another process has taken ram://a over"):
            check_first()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ESTALE])
def test_without_locks_the_name_counts_and_a_stale_file_of_nfs_is_opened_again(
    folders: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real, failures = fcntl.flock, [number]

    def flock(*arguments: int) -> None:
        if failures:
            raise OSError(failures.pop(), "")
        real(*arguments)

    monkeypatch.setattr(folder_lock, "_ENDING_SECS", 3.0)
    monkeypatch.setattr(fcntl, "flock", flock)
    with hold("a", "a", TRAINING, nothing) as check_owner:
        check_owner()
    assert not failures
    assert not list(folders.glob("*/.*.lock*"))


@pytest.mark.parametrize(("number", "held"), [(errno.ESTALE, False), (errno.ENOLCK, True)])
def test_a_stale_lock_is_held_by_nobody_and_one_that_proves_nothing_may_be(
    folders: Path, monkeypatch: pytest.MonkeyPatch, number: int, held: bool
) -> None:
    def flock(*_: int) -> None:
        raise OSError(number, "")

    (folders / "a/.training.lock").write_text("process 4 on node7")
    monkeypatch.setattr(fcntl, "flock", flock)
    assert is_held("a", TRAINING) == held


def test_whether_a_lock_is_held_that_may_not_be_read_is_an_error() -> None:
    with open_folder() as folder:
        (folder / ".training.lock").touch(mode=0)
        with unprivileged(), pytest.raises(PermissionError):
            is_held(str(folder), TRAINING)


# Processes that compete.


def child(work: Callable[[], None]) -> int:
    """Starts a process that does some work; returns its id."""
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(0)
    return pid


@pytest.fixture
def holder(folders: Path) -> Iterator[int]:
    """A process that holds the folder a until it is killed."""

    def work() -> None:
        with hold("a", "a", TRAINING, nothing):
            time.sleep(60)

    pid = child(work)
    while not folder_lock._name_in("a/.training.lock"):
        time.sleep(0.01)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_the_holder_is_named(holder):
    waits: list[int] = []
    words = f"^a is used by another training: process {holder} on .+, which started 20"
    with pytest.raises(UserError, match=words), hold("a", "a", TRAINING, lambda: waits.append(1)):
        pass
    assert waits


@pytest.mark.parametrize("is_other_host", [True, False])
def test_a_lock_of_another_host_or_container_is_waited_for_longer(
    folders, holder, monkeypatch, is_other_host
):
    owner = (
        "process 4 on node7"
        if is_other_host
        else f"process {os.getpid()} on {socket.gethostname()}"
    )
    for name, secs in (("_ENDING_SECS", 0.0), ("_POLL_SECS", 0.01), ("_LOST_SECS", 0.1)):
        monkeypatch.setattr(folder_lock, name, secs)
    (folders / "a/.training.lock").write_text(f"{owner}, which started once")
    waits: list[int] = []
    with pytest.raises(UserError, match=owner), hold("a", "a", TRAINING, lambda: waits.append(1)):
        pass
    assert len(waits) > 2


def test_a_second_process_of_a_worker_waits_where_both_see_the_folder(folders: Path) -> None:
    with (
        hold_worker("a", "worker/0", nothing),
        hold_worker("a", "worker/1", nothing),
        pytest.raises(UserError, match="^a is used by another worker-0: "),
        hold_worker("a", "worker/0", nothing),
    ):
        pass
    with hold_worker("nowhere", "worker/0", nothing), hold_worker("ram://a", "worker/0", nothing):
        assert sorted(path.name for path in folders.iterdir()) == ["a", "b", "logs"]


def test_the_lock_of_a_killed_process_is_free_at_once(folders, holder):
    os.kill(holder, signal.SIGKILL)
    os.waitid(os.P_PID, holder, os.WEXITED | os.WNOWAIT)
    path = folders / "a/.training.lock"
    assert path.read_text().startswith(f"process {holder} on ")
    assert not is_held("a", TRAINING)
    path.write_text(f"{path.read_text()} on a day with a long name")
    with hold("a", "a", TRAINING, nothing) as check_owner:
        assert path.read_text().startswith(f"process {os.getpid()} on ")
        check_owner()


def test_processes_that_compete_never_hold_the_lock_together(folders, monkeypatch):
    """Every process adds 20 to a number that only the lock protects."""
    monkeypatch.setattr(folder_lock, "_ENDING_SECS", 60.0)
    monkeypatch.setattr(folder_lock, "_POLL_SECS", 0.001)
    number = folders / "number"
    number.write_text("0")

    def count() -> None:
        for _ in range(20):
            with hold("a", "a", TRAINING, nothing):
                before = int(number.read_text())
                time.sleep(0.001)
                number.write_text(str(before + 1))

    for pid in [child(count) for _ in range(4)]:
        os.waitpid(pid, 0)
    assert number.read_text() == "80"
