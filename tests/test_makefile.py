"""`make venv` sets up .venv completely, and again only if it must; here without requirements."""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import shell


@pytest.fixture(autouse=True)
def is_no_part_of_another_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out what `make test` tells the commands that it runs."""
    for name in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS"):
        monkeypatch.delenv(name, raising=False)


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


@pytest.mark.system
def test_a_finished_venv_is_left_alone(made: Path) -> None:
    assert "Setting up" not in shell.run("make venv", made).stdout


@pytest.mark.system
@pytest.mark.parametrize("gone", [".installed", "bin/python"])
def test_a_half_made_venv_is_made_anew(made: Path, quick: Mapping[str, str], gone: str) -> None:
    (made / ".venv" / gone).unlink()
    left_over = made / ".venv" / "left-over"
    left_over.touch()
    assert "Setting up" in shell.run("make venv", made, env=quick).stdout
    assert not left_over.exists()


@pytest.mark.system
def test_the_gpu_variant_replaces_the_venv_and_stays(made: Path, quick: Mapping[str, str]) -> None:
    # The file is empty here, since the real requirements are gigabytes.
    assert (
        "from requirements-gpu.lock"
        in shell.run("make venv REQUIREMENTS=requirements-gpu.lock", made, env=quick).stdout
    )
    assert "Setting up" not in shell.run("make venv", made).stdout
    back = shell.run("make venv REQUIREMENTS=requirements.lock", made, env=quick)
    assert "from requirements.lock" in back.stdout


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder with the Makefile, empty requirements, and bin/ with all that PATH then has."""
    (tmp_path / "Makefile").write_bytes((shell.ROOT / "Makefile").read_bytes())
    (tmp_path / "requirements.lock").touch()
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "cp", "make", "rm", "uname"):
        (tools / name).symlink_to(str(shutil.which(name)))
    return tmp_path


def _program(folder: Path, name: str, body: str) -> None:
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


_NEWER = "exit 1"  # What python3 answers if it is asked whether it fits.
_WITHOUT_VENV = 'case "$*" in *ensurepip*) exit 1;; esac'


@pytest.mark.parametrize(
    ("python3", "way"),
    [
        (
            _NEWER,
            "Install uv (https://docs.astral.sh/uv/), and make gets Python 3.11 by it. Or name one",
        ),
        (_WITHOUT_VENV, "On Debian: apt-get install python3-venv. Elsewhere, name one"),
    ],
    ids=["newer", "without venv"],
)
def test_a_machine_without_a_fitting_python_is_told_how_in_one_line(
    bare: Path, python3: str, way: str
) -> None:
    _program(bare, "python3", python3)
    done = shell.run("make venv", bare, env={"PATH": str(bare / "bin")}, exit_code=2)
    assert done.stderr.splitlines()[0] == (
        f"No Python 3.9, 3.10 or 3.11 that can make a venv is on PATH. {way}: "
        "make PYTHON=/path/to/python3.11"
    )
    assert done.stdout == ""
    assert not (bare / ".venv").exists()


# Has no Python until it has installed one, which makes a venv that installs nothing.
_UV = """\
echo "$UV_PYTHON_PREFERENCE $*" >> calls
case "$*" in
"python find --system 3.11") test -e got && echo ./got ;;
"python install 3.11") printf '#!/bin/sh\n/bin/mkdir -p .venv/bin; echo exit > .venv/bin/python
/bin/chmod +x .venv/bin/python' > got; /bin/chmod +x got ;;
esac"""


def test_uv_installs_a_python_where_none_fits(bare: Path) -> None:
    _program(bare, "python3", _NEWER)
    _program(bare, "uv", _UV)
    done = shell.run("make venv", bare, env={"PATH": str(bare / "bin")})
    assert done.stdout.splitlines()[:2] == [
        "No Python 3.9, 3.10 or 3.11 that can make a venv is on PATH: uv provides 3.11.",
        "Setting up .venv from requirements.lock: one to two minutes, once.",
    ]
    assert (bare / "calls").read_text(encoding="utf-8").splitlines() == [
        "only-managed python find --system 3.11",
        "only-managed python install 3.11",
        "only-managed python find --system 3.11",
    ]
    assert (bare / ".venv" / ".installed").exists()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the Makefile and a wheel that pip finds there, without an index."""
    (tmp_path / "Makefile").write_bytes((shell.ROOT / "Makefile").read_bytes())
    shell.write_wheel(tmp_path, "sample", "1.0")
    return tmp_path


@pytest.mark.system
@pytest.mark.parametrize("right", [True, False])
def test_a_package_is_installed_only_if_its_hash_is_the_locked_one(
    package: Path, quick: Mapping[str, str], right: bool
) -> None:
    wheel = (package / "sample-1.0-py3-none-any.whl").read_bytes()
    digest = hashlib.sha256(wheel if right else b"another file").hexdigest()
    lock = f"sample==1.0 --hash=sha256:{digest}\n"
    (package / "requirements.lock").write_text(lock, encoding="utf-8")
    env = {**quick, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(package)}
    done = shell.run("make venv", package, env=env, exit_code=0 if right else 2)
    assert ("THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr) is not right
    assert (package / ".venv" / ".installed").exists() is right


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
