"""A folder that one run writes to is closed to the others, whichever flag names it."""

import errno
import fcntl
import os
from pathlib import Path

import pytest
import tensorflow.compat.v1 as tf

from cifar10.errors import TrainingError, UserError
from cifar10.host import lock_file
from cifar10.host.folder_lock import EVALUATOR, TRAINING, hold


def nothing() -> None:
    """Stands for a check that finds nothing."""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the folders a, b and logs; a lock is waited for shortly."""
    monkeypatch.setattr(lock_file, "_ENDING_SECS", 0.1)
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


@pytest.mark.parametrize("log", ["a", "./a/", "link"])
def test_a_folder_that_is_both_is_held_once(folders: Path, log: str) -> None:
    (folders / "link").symlink_to("a")
    with hold("a", log, TRAINING, nothing) as check_owner:
        check_owner()
        assert [path.name for path in (folders / "a").iterdir()] == [".training.lock"]


def test_an_evaluator_and_a_training_share_their_folders(folders: Path) -> None:
    with hold("a", "logs", TRAINING, nothing), hold("a", "logs", EVALUATOR, nothing):
        locks = [".evaluator.lock", ".training.lock"]
        assert sorted(path.name for path in (folders / "logs").iterdir()) == locks


def test_a_lock_that_is_a_link_is_refused(folders: Path) -> None:
    (folders / "precious").write_text("all")
    (folders / "logs/.training.lock").symlink_to(folders / "precious")
    with pytest.raises(UserError) as refusal, hold("a", "logs", TRAINING, nothing):
        pass
    assert str(refusal.value) == "logs/.training.lock is a link, which is not followed; remove it"
    assert (folders / "precious").read_text() == "all"


@pytest.mark.parametrize("folder", ["a", "logs"])
def test_a_folder_that_was_taken_over_ends_the_run(folders: Path, folder: str) -> None:
    with hold("a", "logs", TRAINING, nothing) as check_owner:
        check_owner()
        (folders / folder / ".training.lock").unlink()
        with pytest.raises(TrainingError, match=f"^another process has taken {folder} over, or "):
            check_owner()


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


def test_a_file_system_without_locks_is_as_an_object_store(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with hold("a", "logs", TRAINING, nothing) as check_owner:
        check_owner()
    assert not list(folders.glob("*/.*.lock*"))
