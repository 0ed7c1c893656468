"""Runs command lines as a user does: in bash, in a folder that looks like the repository."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

ROOT = Path(__file__).resolve().parent.parent


def run(
    command: str,
    cwd: Path,
    *,
    env: Optional[Mapping[str, str]] = None,
    exit_code: int = 0,
    timeout_secs: float = 240,
) -> "subprocess.CompletedProcess[str]":
    """Runs `command` and returns the completed process.

    Raises:
      AssertionError: the command ended with another exit code.
    """
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_secs,
        check=False,
    )
    assert done.returncode == exit_code, (
        f"{command}\nexit code {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    )
    return done


def make_workspace(folder: Path) -> Path:
    """Makes `folder` look like the repository after `make venv`; commands write output there."""
    for name in (
        "benchmarks",
        "cifar10",
        "cifar10_program",
        "data_prep",
        "launch",
        "testbeds",
        "cifar10_main.py",
    ):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def write_wheel(folder: Path, name: str, version: str) -> Path:
    """Writes a wheel with nothing but the module `sample`; returns its path."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("sample.py", "")
        for file, text in (
            ("METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ):
            wheel.writestr(f"{name}-{version}.dist-info/{file}", text)
    return path
