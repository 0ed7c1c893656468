"""Rules for files that are not Python code: requirements, changelog, licence and scripts."""

import re
import subprocess
from pathlib import Path

import pytest

_PIN = re.compile(
    r"[A-Za-z0-9_-]+(\[[a-z-]+\])?==\d[\w.]*(; python_version >= \"3\.\d+\")?( # .+)?"
)


def _requirements(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-r "))]


@pytest.mark.parametrize(
    "name",
    [
        "requirements.txt",
        "requirements-dev.txt",
        "requirements-gpu.txt",
        "tests/outside/tfds.txt",
    ],
)
def test_every_requirement_is_pinned(root: Path, name: str) -> None:
    assert [line for line in _requirements(root / name) if not _PIN.fullmatch(line)] == []


def test_the_gpu_variant_is_the_same_tensorflow(root: Path) -> None:
    (plain,) = (line for line in _requirements(root / "requirements.txt") if "flow==" in line)
    (gpu,) = _requirements(root / "requirements-gpu.txt")
    assert gpu == plain.replace("tensorflow", "tensorflow[and-cuda]")
    assert "-r requirements.txt" in (root / "requirements-gpu.txt").read_text(encoding="utf-8")


def test_the_changelog_knows_the_version(root: Path) -> None:
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.+)"$', project, re.MULTILINE)
    assert f"\n## {version}" in (root / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_licence_is_the_full_text(root: Path) -> None:
    text = (root / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("name", [".ci/run", "testbeds/install_packages.sh"])
def test_a_script_is_sound_and_can_be_started(root: Path, name: str) -> None:
    assert (root / name).stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(root / name)], check=True)
