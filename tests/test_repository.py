"""Rules for files that are not Python code: requirements, changelog, licence, make and scripts."""

import re
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# What CI and users run: a lock must hold for each of these.
_PLATFORMS = [
    {"python_version": python, "python_full_version": f"{python}.7", "platform_machine": machine}
    for python in ("3.9", "3.10", "3.11")
    for machine in ("x86_64", "aarch64")
]


def _platforms(name: str) -> list[dict[str, str]]:
    """Returns the platforms of a lock; NVIDIA's libraries are for x86-64."""
    gpu = name == "requirements-gpu"
    return [one for one in _PLATFORMS if not gpu or one["platform_machine"] == "x86_64"]


def _requirements(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-r "))]


def test_what_only_one_test_installs_is_pinned(root: Path) -> None:
    """The locks hold all other requirements at their versions."""
    lines = _requirements(root / "tests" / "outside" / "tfds.txt")
    assert [line for line in lines if not re.match(r"[a-z0-9-]+==\d[\d.]*( #|$)", line)] == []


def _lock(path: Path) -> dict[Requirement, list[str]]:
    """Returns each requirement of a lock with its hashes."""
    text = re.sub(r"^ *#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    rows = [line.split("--hash=") for line in text.replace("\\\n", "").splitlines()]
    return {Requirement(row[0]): [one.strip() for one in row[1:]] for row in rows}


def _holds(requirement: Requirement, platform: dict[str, str]) -> bool:
    linux = {"sys_platform": "linux", "platform_system": "Linux", "extra": ""}
    here = {key: str(value) for key, value in default_environment().items()}
    environment = {**here, **linux, **platform}
    return requirement.marker is None or requirement.marker.evaluate(environment)


def _asked(root: Path, name: str) -> list[Requirement]:
    """Returns the requirements of a file and of the file that it includes."""
    names = {"requirements.txt", name}
    return [
        Requirement(line.partition(" #")[0])
        for one in sorted(names)
        for line in _requirements(root / one)
    ]


@pytest.mark.parametrize("name", ["requirements", "requirements-dev", "requirements-gpu"])
def test_every_requirement_is_locked_at_its_version_for_every_platform(
    root: Path, name: str
) -> None:
    lock = _lock(root / f"{name}.lock")
    for platform in _platforms(name):
        rows = [one for one in lock if _holds(one, platform)]
        locked = {canonicalize_name(one.name): str(one.specifier) for one in rows}
        assert len(locked) == len(rows), platform  # one version of each package
        asked = [one for one in _asked(root, f"{name}.txt") if _holds(one, platform)]
        expected = {canonicalize_name(one.name): str(one.specifier) for one in asked}
        assert {key: locked.get(key) for key in expected} == expected, platform


@pytest.mark.parametrize("name", ["requirements", "requirements-dev", "requirements-gpu"])
def test_every_locked_package_has_a_version_and_hashes(root: Path, name: str) -> None:
    lock = _lock(root / f"{name}.lock")
    assert len(lock) > 50
    for requirement, hashes in lock.items():
        assert re.fullmatch(r"==\d[\w.]*", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes), requirement


def test_the_locks_agree_on_every_package(root: Path) -> None:
    main = _lock(root / "requirements.lock")
    for name in ("requirements-dev", "requirements-gpu"):
        other = _lock(root / f"{name}.lock")
        for platform in _platforms(name):
            ours = {one.name: str(one.specifier) for one in main if _holds(one, platform)}
            theirs = {one.name: str(one.specifier) for one in other if _holds(one, platform)}
            assert {key: theirs.get(key) for key in ours} == ours, (name, platform)
