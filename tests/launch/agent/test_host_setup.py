"""The program that prepares a host: what it decides by itself."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.agent import host_setup
from launch.agent.host_setup import Failed, Setup
from tests.launch.launcher import ROOT


def setup() -> Setup:
    frames: Any = None
    return Setup(frames)


def test_a_host_without_a_python_that_fits_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_setup, "_FITS", "raise SystemExit(1)")
    with pytest.raises(Failed) as caught:
        setup()._host_python()
    words = "it has no Python 3.9, 3.10 or 3.11 that can make a venv on PATH (this one is 3."
    assert str(caught.value).startswith(words)
    assert str(caught.value).endswith("on Debian: apt-get install python3-venv")


def test_a_python_that_fits_is_found() -> None:
    assert setup()._host_python().startswith(("python3", "/"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "ERROR: No matching distribution found (from versions: none)",
            "pip finds no package index from there; give the host a way to one (its "
            "~/.config/pip/pip.conf), or a folder of wheels",
        ),
        (
            "WARNING: Retrying ... [Errno -3] Temporary failure in name resolution",
            "pip finds no package index from there; give the host a way to one (its "
            "~/.config/pip/pip.conf), or a folder of wheels",
        ),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "pip ended with exit code 1"),
    ],
)
def test_what_pip_prints_is_explained(line: str, reason: str) -> None:
    assert host_setup._why("pip", 1, ("Collecting x", line)) == reason


def test_records_are_made_there_and_the_second_time_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # data_prep with a set of 40 images, which setup has no flag for.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@" --synthetic-size 40\n')
    python.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    frames: Any = SimpleNamespace(child=None)
    order = {"python": str(python), "source": "synthetic", "folder": "data"}
    assert Setup(frames).make_records(order) == {"words": "made from synthetic"}
    assert (tmp_path / "data" / "manifest.json").exists()
    assert Setup(frames).make_records(order) == {"words": "are there"}
    with pytest.raises(Failed, match="^data_prep ended with exit code 2$") as caught:
        Setup(frames).make_records({**order, "source": "nowhere.tar.gz"})
    assert caught.value.last[-1].startswith("error: --synthetic-size is for --source synthetic")
    assert "cifar10-setup " in capsys.readouterr().out


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
        setup().venv({"venv": ".venv", "requirements": lock})
    assert str(caught.value).startswith(words)
    assert str(caught.value).endswith("to install without hashes: --requirements requirements.txt")


def test_a_host_without_room_for_a_venv_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(host_setup, "_VENV_BYTES", 1 << 62)
    one = setup()
    one.enter({"workdir": str(tmp_path)})
    with pytest.raises(Failed, match=r"MiB free at .*; a venv needs 3 GiB$"):
        one.venv({"venv": ".venv", "requirements": "requirements.lock"})
