"""Runs the snippets of documents in processes that have not loaded our code."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

_WITHOUT_OURS = """
import sys as _sys
_ours = {"cifar10", "data_prep", "launch", "benchmarks", "tests"} & set(_sys.modules)
assert not _ours, _ours
"""


def run_python(code: str, folder: Path, python: object = sys.executable) -> None:
    """Runs code in a folder; fails if the process ends with an error or has loaded our code.

    Args:
      code: the Python code.
      folder: the working directory.
      python: the interpreter; it runs isolated from this repository and from PYTHONPATH.
    """
    _run([str(python), "-I", "-c", code + _WITHOUT_OURS], folder)


def run_shell(code: str, folder: Path) -> str:
    """Runs commands in a folder, with this environment's programs first, and returns the output."""
    return _run(["bash", "-euo", "pipefail", "-c", code], folder)


def python_with(requirements: Path, folder: Path) -> Path:
    """Makes a virtual environment with this environment's packages and further ones.

    Args:
      requirements: requirements file of the further packages, whose dependencies are not installed.
      folder: folder of the new virtual environment.

    Returns:
      The path of its interpreter.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    install = ["install", "--quiet", "--no-deps", "--no-compile", f"--target={packages}"]
    _run([sys.executable, "-m", "pip", *install, f"--requirement={requirements}"], folder)
    return folder / "bin" / "python"


def _run(command: list[str], folder: Path) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**kept, "PATH": path, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
