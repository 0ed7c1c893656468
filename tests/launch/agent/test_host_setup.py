"""The program that prepares a host: what it decides by itself."""

import io
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from launch.agent import host_setup
from launch.agent.host_setup import Failed


def test_a_host_without_a_python_that_fits_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_setup, "_FITS", "raise SystemExit(1)")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failed) as caught:
        host_setup._host_python()
    words = "it has no Python 3.9, 3.10 or 3.11 that can make a venv on PATH (this one is 3."
    assert str(caught.value).startswith(words)
    assert str(caught.value).endswith("on Debian: apt-get install python3-venv")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "ERROR: No matching distribution found (from versions: none)",
            "pip finds no package index from there; give the host a way to one (its "
            "~/.config/pip/pip.conf), or a folder of wheels",
        ),
        ("WARNING: Retrying: timed out\n" + "Collecting y\n" * 8, "pip ended with exit code 1"),
    ],
)
def test_what_pip_prints_is_explained(line: str, reason: str) -> None:
    lines = ["Collecting x\n", *line.splitlines(keepends=True)]
    assert host_setup._why("pip", 1, lines) == reason


def receive(monkeypatch: pytest.MonkeyPatch, place: Path, data: bytes, **order: Any) -> None:
    """Unpacks an archive, after whose bytes standard input ends, in a working directory."""
    (place / "pack").mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    known = {"packages": ["pack"], "records": None, **order}
    host_setup._receive(known, "data", known["records"] is not None)


def archive(**content: str) -> bytes:
    """Returns an archive of the files `pack/NAME.py`, each 1,024 bytes long with its header."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w|") as made:
        for name, text in content.items():
            info = tarfile.TarInfo(f"code/pack/{name}.py")
            info.size = len(text)
            made.addfile(info, io.BytesIO(text.encode()))
    return file.getvalue()


@pytest.mark.parametrize("end", [0, 300, 1024, 1300, 1536, 2048, 2500])
def test_of_an_archive_that_ends_early_nothing_is_removed(
    end: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("a", "b", "c", "old")
    (tmp_path / "pack").mkdir()
    for name in names:
        (tmp_path / "pack" / f"{name}.py").touch()

    def prepare(order: Any) -> None:
        data = archive(a="x = 1", b="x = 2", c="x = 3")[:end]
        receive(monkeypatch, tmp_path, data, code=3)

    monkeypatch.setattr(host_setup, "prepare", prepare)
    monkeypatch.setattr(os, "setsid", lambda: None)
    monkeypatch.setattr(host_setup, "_beat", lambda: None)
    host_setup.main({})
    assert "failed the archive ended early" in capsys.readouterr().out
    found = sorted(path.name for path in (tmp_path / "pack").iterdir())
    assert found == [f"{name}.py" for name in names]


def test_a_file_keeps_its_time_unless_its_content_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive(monkeypatch, tmp_path, archive(a="x = 1", b="x = 1", empty=""), code=3)
    assert (tmp_path / "pack" / "empty.py").exists()  # though it is as empty as none
    for name in ("a", "b"):
        os.utime(tmp_path / "pack" / f"{name}.py", (5, 5))
    receive(monkeypatch, tmp_path, archive(a="x = 1", b="x = 2"), code=2)
    assert (tmp_path / "pack" / "a.py").stat().st_mtime == 5
    # Not the launcher's time, which is 0 in this archive.
    assert (tmp_path / "pack" / "b.py").stat().st_mtime > 5


def test_a_venv_is_fresh_while_its_lock_does_not_change(tmp_path: Path) -> None:
    stamp, lock = tmp_path / ".installed", tmp_path / "requirements.lock"
    lock.touch()
    assert not host_setup._is_fresh(str(stamp), str(lock))
    stamp.write_text(str(lock))
    assert host_setup._is_fresh(str(stamp), str(lock))
    os.utime(lock, (stamp.stat().st_mtime + 1,) * 2)
    assert not host_setup._is_fresh(str(stamp), str(lock))
    os.utime(stamp, (lock.stat().st_mtime,) * 2)
    stamp.write_text("requirements.txt")
    assert not host_setup._is_fresh(str(stamp), str(lock))


@pytest.mark.parametrize(
    ("lock", "machine", "words"),
    [
        ("requirements.lock", "riscv64", "requirements.lock is for Linux on x86_64 or aarch64, a"),
        ("requirements-gpu.lock", "aarch64", "requirements-gpu.lock is for Linux on x86_64, and "),
    ],
)
def test_a_lock_for_other_machines_is_refused(
    lock: str, machine: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platform.machine", lambda: machine)
    with pytest.raises(Failed) as caught:
        host_setup._make_venv(".venv", lock)
    assert str(caught.value).startswith(words)
    assert str(caught.value).endswith("to install without hashes: --requirements requirements.txt")


def test_a_host_without_room_for_a_venv_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(host_setup, "_VENV_BYTES", 1 << 62)
    with pytest.raises(Failed, match=r"MiB free at .*; a venv needs 3 GiB$"):
        host_setup._make_venv(".venv", "requirements.lock")
