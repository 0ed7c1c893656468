"""Rules for files that are not Python code: requirements, changelog, licence, make and scripts."""

import re
from collections.abc import Iterable
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
    machines = ("x86_64",) if name == "requirements-gpu" else ("x86_64", "aarch64")
    return [platform for platform in _PLATFORMS if platform["platform_machine"] in machines]


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
    return {Requirement(row[0]): [digest.strip() for digest in row[1:]] for row in rows}


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
        for path in sorted(names)
        for line in _requirements(root / path)
    ]


def _pins(requirements: Iterable[Requirement], platform: dict[str, str]) -> dict[str, str]:
    """Returns the versions of the packages that a platform needs."""
    return {
        canonicalize_name(requirement.name): str(requirement.specifier)
        for requirement in requirements
        if _holds(requirement, platform)
    }


@pytest.mark.parametrize("name", ["requirements", "requirements-dev", "requirements-gpu"])
def test_every_requirement_is_locked_at_its_version_for_every_platform(
    root: Path, name: str
) -> None:
    lock = _lock(root / f"{name}.lock")
    for platform in _platforms(name):
        locked = _pins(lock, platform)
        # One version of each package.
        assert len(locked) == sum(_holds(row, platform) for row in lock), platform
        expected = _pins(_asked(root, f"{name}.txt"), platform)
        assert {key: locked.get(key) for key in expected} == expected, platform


@pytest.mark.parametrize("name", ["requirements", "requirements-dev", "requirements-gpu"])
def test_every_locked_package_has_a_version_and_hashes(root: Path, name: str) -> None:
    lock = _lock(root / f"{name}.lock")
    assert len(lock) > 50
    for requirement, hashes in lock.items():
        assert re.fullmatch(r"==\d[\w.]*", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", digest) for digest in hashes), requirement


def test_the_locks_agree_on_every_package(root: Path) -> None:
    main = _lock(root / "requirements.lock")
    for name in ("requirements-dev", "requirements-gpu"):
        other = _lock(root / f"{name}.lock")
        for platform in _platforms(name):
            ours, theirs = _pins(main, platform), _pins(other, platform)
            assert {key: theirs.get(key) for key in ours} == ours, (name, platform)
