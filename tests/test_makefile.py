"""`make venv` sets up .venv completely, and again only if it must; here without requirements."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import shell


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the Makefile, empty requirements, and a complete .venv."""
    folder = tmp_path_factory.mktemp("makefile")
    (folder / "Makefile").write_bytes((shell.ROOT / "Makefile").read_bytes())
    (folder / "requirements.txt").touch()
    (folder / "requirements-gpu.txt").touch()
    assert "Setting up .venv from requirements.txt" in shell.run("make venv", folder).stdout
    return folder


@pytest.fixture(scope="module")
def quick(made: Path) -> Mapping[str, str]:
    """The variable that names a Python whose `-m venv .venv` quickly copies the first .venv."""
    kept = made / "kept"
    shutil.copytree(made / ".venv", kept, symlinks=True)
    (kept / ".installed").unlink()
    python = made / "python"
    python.write_text(f'#!/bin/sh\ntest "$*" = "-m venv .venv" && cp -a {kept} .venv\n')
    python.chmod(0o755)
    return {"PYTHON": str(python)}


def test_a_finished_venv_is_left_alone(made: Path) -> None:
    assert "Setting up" not in shell.run("make venv", made).stdout


def test_a_half_made_venv_is_made_anew(made: Path, quick: Mapping[str, str]) -> None:
    (made / ".venv" / ".installed").unlink()
    left_over = made / ".venv" / "left-over"
    left_over.touch()
    assert "Setting up" in shell.run("make venv", made, env=quick).stdout
    assert not left_over.exists()


def test_a_venv_whose_python_is_gone_is_made_anew(made: Path, quick: Mapping[str, str]) -> None:
    (made / ".venv" / "bin" / "python").unlink()
    assert "Setting up" in shell.run("make venv", made, env=quick).stdout


def test_other_requirements_make_another_venv(made: Path, quick: Mapping[str, str]) -> None:
    (made / "requirements.txt").write_text("# edited\n", encoding="utf-8")
    assert "Setting up" in shell.run("make venv", made, env=quick).stdout


@pytest.mark.readme("make venv REQUIREMENTS=requirements-gpu.txt")
def test_the_gpu_variant_replaces_the_venv_and_stays(
    made: Path, quick: Mapping[str, str], readme_command: str
) -> None:
    # The file is empty here, since the real requirements are gigabytes.
    assert "from requirements-gpu.txt" in shell.run(readme_command, made, env=quick).stdout
    assert "Setting up" not in shell.run("make venv", made).stdout
    back = shell.run("make venv REQUIREMENTS=requirements.txt", made, env=quick)
    assert "from requirements.txt" in back.stdout


def test_a_machine_without_a_fitting_python_is_told_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_bytes((shell.ROOT / "Makefile").read_bytes())
    (tmp_path / "requirements.txt").touch()
    done = shell.run("make venv PYTHON=", tmp_path, exit_code=2)
    assert "No Python 3.9, 3.10 or 3.11" in done.stderr
    assert "apt-get install python3-venv" in done.stderr
    assert not (tmp_path / ".venv").exists()
