"""What the init container says of folders, run as another user."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.backends.kubernetes import folders

IDS = 65534
OWN = (os.getuid(), os.getgid())
ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root may take another user's id")


@pytest.fixture
def volume() -> Iterator[Path]:
    """A folder that every user can reach, unlike those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="launch-volume-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def check(*words: object) -> tuple[int, str]:
    """Runs the script as another user, who may not be able to start this Python."""
    become = f"import os, sys, tempfile; os.setgroups([]); os.setgid({IDS}); os.setuid({IDS})\n"
    source = become + Path(folders.__file__).read_text()
    done = subprocess.run(
        [sys.executable, "-S", "-c", source, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@ROOT
@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("nfs.example:/results", "on the NFS server nfs.example: chown -R 65534:65534 /results"),
        ("/results", "on each node: chown -R 65534:65534 /results"),
        ("cifar10-output", "its storage does not apply fsGroup; once, in a pod that runs as root: "
         "chown -R 65534:65534 its root"),
    ],
)  # fmt: skip
def test_an_output_folder_that_is_not_writable_is_named_with_the_way_out(
    volume: Path, name: str, advice: str
) -> None:
    assert check("write", name, volume, volume) == (
        2,
        f"{volume} (volume {name}) is not writable for uid 65534, gid 65534: Permission denied; "
        f"{volume} belongs to 0:0, mode 0755; {advice}\n",
    )


@ROOT
def test_records_that_are_not_readable_are_named_with_the_way_out(volume: Path) -> None:
    record = volume / "train.tfrecords"
    record.write_bytes(b"x")
    record.chmod(0o600)
    code, said = check("read", "nfs.example:/records", volume, volume)
    assert code == 2
    assert said.startswith(f"{record} (volume nfs.example:/records) is not readable for uid 65534")
    assert said.endswith("on the NFS server nfs.example: chmod -R a+rX /records\n")
    record.chmod(0o644)
    assert check("read", "nfs.example:/records", volume, volume) == (0, "")


@ROOT
def test_a_folder_that_training_will_make_counts_by_the_one_above_it(volume: Path) -> None:
    run = volume / "own" / "run1"
    assert check("write", "claim", volume, run)[0] == 2
    (volume / "own").mkdir(mode=0o777)
    (volume / "own").chmod(0o777)
    assert check("write", "claim", volume, run) == (0, "")
    assert not run.exists()


@ROOT
def test_a_folder_that_cannot_even_be_looked_at_is_named(volume: Path) -> None:
    (volume / "hidden" / "data").mkdir(parents=True)
    (volume / "hidden").chmod(0o700)
    place = volume / "hidden" / "data"
    words = "is not readable for uid 65534, gid 65534: Permission denied\n"
    assert check("read", "records", place, place) == (2, f"{place} (volume records) {words}")


@ROOT
def test_the_first_folder_at_fault_is_named(volume: Path) -> None:
    volume.chmod(0o700)
    words = ("read", "records", volume, volume, "write", "results", volume, volume)
    code, said = check(*words)
    assert (code, said.count("\n"), "(volume records)" in said) == (2, 1, True)


def test_a_check_leaves_nothing_in_the_folder(volume: Path) -> None:
    if OWN[0] != 0:
        volume.chmod(stat.S_IRWXU)
    assert folders.main(["write", "results", str(volume), str(volume)]) == 0
    assert list(volume.iterdir()) == []


def test_missing_records_are_left_to_the_training(tmp_path: Path) -> None:
    assert folders.main(["read", "records", str(tmp_path), str(tmp_path / "none")]) == 0
