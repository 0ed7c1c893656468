"""`make venv` sets up .venv completely, and again only if it must; here without requirements."""

import hashlib
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import shell


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the Makefile, empty requirements, and a complete .venv."""
    folder = tmp_path_factory.mktemp("makefile")
    (folder / "Makefile").write_bytes((shell.ROOT / "Makefile").read_bytes())
    for name in ("requirements.lock", "requirements.txt", "requirements-gpu.lock"):
        (folder / name).touch()
    assert "Setting up .venv from requirements.lock" in shell.run("make venv", folder).stdout
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
    (made / "requirements.lock").write_text("# edited\n", encoding="utf-8")
    assert "Setting up" in shell.run("make venv", made, env=quick).stdout


@pytest.mark.readme("make venv REQUIREMENTS=requirements-gpu.lock")
def test_the_gpu_variant_replaces_the_venv_and_stays(
    made: Path, quick: Mapping[str, str], readme_command: str
) -> None:
    # The file is empty here, since the real requirements are gigabytes.
    assert "from requirements-gpu.lock" in shell.run(readme_command, made, env=quick).stdout
    assert "Setting up" not in shell.run("make venv", made).stdout
    back = shell.run("make venv REQUIREMENTS=requirements.lock", made, env=quick)
    assert "from requirements.lock" in back.stdout


def test_a_machine_without_a_fitting_python_is_told_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_bytes((shell.ROOT / "Makefile").read_bytes())
    (tmp_path / "requirements.lock").touch()
    done = shell.run("make venv PYTHON=", tmp_path, exit_code=2)
    assert "No Python 3.9, 3.10 or 3.11" in done.stderr
    assert "apt-get install python3-venv" in done.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the Makefile and a wheel that pip finds there, without an index."""
    (tmp_path / "Makefile").write_bytes((shell.ROOT / "Makefile").read_bytes())
    with zipfile.ZipFile(tmp_path / "sample-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("sample.py", "")
        for name, text in (
            ("METADATA", "Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n"),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ):
            wheel.writestr(f"sample-1.0.dist-info/{name}", text)
    return tmp_path


@pytest.mark.parametrize("right", [True, False])
def test_a_package_is_installed_only_if_its_hash_is_the_locked_one(
    package: Path, right: bool
) -> None:
    wheel = (package / "sample-1.0-py3-none-any.whl").read_bytes()
    digest = hashlib.sha256(wheel if right else b"another file").hexdigest()
    lock = f"sample==1.0 --hash=sha256:{digest}\n"
    (package / "requirements.lock").write_text(lock, encoding="utf-8")
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(package)}
    done = shell.run("make venv", package, env=env, exit_code=0 if right else 2)
    assert ("THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr) is not right
    assert (package / ".venv" / ".installed").exists() is right


def test_a_lock_without_hashes_is_refused(package: Path) -> None:
    (package / "requirements.lock").write_text("sample==1.0\n", encoding="utf-8")
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(package)}
    done = shell.run("make venv", package, env=env, exit_code=2)
    assert "Hashes are required in --require-hashes mode" in done.stderr


@pytest.mark.parametrize(
    ("name", "platform", "machines"),
    [
        ("requirements", "Darwin-arm64", "x86_64 aarch64"),
        ("requirements-gpu", "Linux-aarch64", "x86_64"),
    ],
)
def test_a_platform_without_a_lock_is_told_how_to_do_without(
    tmp_path: Path, name: str, platform: str, machines: str
) -> None:
    (tmp_path / "Makefile").write_bytes((shell.ROOT / "Makefile").read_bytes())
    (tmp_path / f"{name}.lock").touch()
    command = f"make venv REQUIREMENTS={name}.lock PLATFORM={platform}"
    done = shell.run(command, tmp_path, exit_code=2)
    assert done.stderr.splitlines()[0] == (
        f"{name}.lock is for Linux on {machines}, and this is {platform}; "
        f"to install without hashes: make venv REQUIREMENTS={name}.txt"
    )
    assert not (tmp_path / ".venv").exists()


def test_every_platform_may_install_without_a_lock(made: Path, quick: Mapping[str, str]) -> None:
    command = "make venv REQUIREMENTS=requirements.txt PLATFORM=Darwin-arm64"
    assert "from requirements.txt" in shell.run(command, made, env=quick).stdout
