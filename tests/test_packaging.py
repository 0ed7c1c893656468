"""`pip install .`: a wheel with all that the code reads, and commands that run anywhere."""

import email
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests import shell

pytestmark = [pytest.mark.timeout(600), pytest.mark.system]
_DATA = "--source synthetic --synthetic-size 200 --out data"
_SMALL = "--model mlp --train-steps 2 --train-batch-size 20"


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built without a network from a copy of what git tracks."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    names = subprocess.check_output(["git", "ls-files", "-z"], cwd=root, text=True).split("\0")
    for name in filter(None, names):
        target = source / name
        if (root / name).is_file():  # not one that was just removed
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((root / name).read_bytes())
    command = f"{sys.executable} -m pip wheel -q --no-deps --no-build-isolation -w {out} ."
    shell.run(command, source)
    (found,) = out.iterdir()
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin/ of a fresh venv with the wheel, which sees the packages of this Python."""
    venv = tmp_path_factory.mktemp("venv")
    shell.run(f"{sys.executable} -m venv --without-pip .", venv)
    site = sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)})
    (Path(site) / "shared.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    python = venv / "bin" / "python"
    shell.run(f"{python} -m pip install -q --no-deps --no-index {wheel}", venv)
    return venv / "bin"


@pytest.fixture(scope="module")
def folder(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder without a checkout, with records in data/."""
    folder = tmp_path_factory.mktemp("elsewhere")
    done = _run(f"cifar10-data {_DATA}", installed, folder)
    assert done.stdout.endswith("Next: cifar10-train --data-dir data --train-batch-size=128\n")
    return folder


def _run(
    command: str, installed: Path, folder: Path, exit_code: int = 0
) -> "subprocess.CompletedProcess[str]":
    path = f"{installed}:{os.environ['PATH']}"
    env = {"PATH": path, "PYTHONPATH": "", "HOME": str(folder), "XDG_STATE_HOME": ""}
    return shell.run(command, folder, env=env, exit_code=exit_code)


def test_the_wheel_holds_every_file_of_the_packages(root: Path, wheel: Path) -> None:
    packages = ["cifar10", "cifar10_program", "data_prep", "launch"]
    tracked = subprocess.check_output(["git", "ls-files", *packages], cwd=root, text=True)
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted(tracked.splitlines())
    assert {"cifar10/kernels/conv_op.cc", "cifar10/report/report.css"} <= set(names)


def test_the_wheel_names_its_version_and_the_requirements(root: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(path))
    assert metadata["Version"] == "0.1.0"
    assert metadata["License-Expression"] == "Apache-2.0"
    lines = (root / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.partition(" #")[0] for line in lines if not line.startswith("#")]
    assert metadata.get_all("Requires-Dist") == pins
    assert "tensorflow==2.15.1" in pins


@pytest.mark.parametrize("command", ["cifar10-train", "cifar10-data", "cifar10-launch"])
def test_a_command_says_its_version_and_helps_by_its_own_name(
    installed: Path, tmp_path: Path, command: str
) -> None:
    done = _run(f"{command} --version", installed, tmp_path)
    assert done.stdout == "cifar10-estimator-pipeline 0.1.0\n"
    text = _run(f"{command} --help", installed, tmp_path).stdout
    assert f"  {command} " in text
    assert not re.search(r"cifar10_main\.py|python -m (data_prep|launch)\b", text)


_COMPLETED = """\
source <({command} --print-completion bash)
COMP_WORDS=({words}) COMP_CWORD={last} COMP_LINE="{words}" COMP_POINT=99
function=$(complete -p {command} | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function {command}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["cifar10-train", "--muon-r"], {"--muon-rate"}),  # although --help does not show it
        (["cifar10-train", "--optimizer", "m"], {"momentum", "muon"}),
        (["cifar10-data", "ver"], {"verify"}),
        (["cifar10-launch", "up", "--on", "lo"], {"local"}),
    ],
    ids=lambda words: " ".join(sorted(words) if isinstance(words, set) else words),
)
def test_bash_completes_the_words_of_a_command(
    installed: Path, tmp_path: Path, words: list[str], expected: set[str]
) -> None:
    script = _COMPLETED.format(command=words[0], words=" ".join(words), last=len(words) - 1)
    done = _run(script, installed, tmp_path)
    assert set(done.stdout.split()) == expected


def test_an_installed_program_trains_in_any_folder_and_writes_its_report(
    installed: Path, folder: Path
) -> None:
    done = _run(f"cifar10-train {_SMALL} --output-dir alone", installed, folder)
    assert "result: alone/result.json" in done.stdout
    assert "<style>" in (folder / "alone" / "report.html").read_text(encoding="utf-8")
    result = json.loads((folder / "alone" / "result.json").read_text(encoding="utf-8"))
    assert result["command"] == ["cifar10-train", *_SMALL.split(), "--output-dir", "alone"]


def test_an_installed_launcher_runs_a_cluster_here(installed: Path, folder: Path) -> None:
    (folder / "a.yaml").write_text("output_dir: cluster\nmodel: mlp\ntrain_batch_size: 20\n")
    command = "cifar10-launch up --on local --ps 1 -- --config a.yaml --train-steps 2"
    done = _run(command, installed, folder)
    assert done.stdout.endswith("master/0 is done\n")
    result = json.loads((folder / "cluster" / "result.json").read_text(encoding="utf-8"))
    assert result["command"][:3] == ["python", "-m", "cifar10"]


def test_the_kernels_are_found_by_an_installed_program(installed: Path, tmp_path: Path) -> None:
    code = "from cifar10 import kernels; print(kernels.path().parent.parent)"
    package = Path(_run(f"python -c '{code}'", installed, tmp_path).stdout.strip())
    assert package.is_relative_to(installed.parent)
    assert (package / "conv_op.cc").exists()
