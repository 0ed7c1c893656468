"""The container image: its content, its user, the files that it writes, and how it stops."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from cifar10 import kernels
from cifar10.host.cpu import cpu_flags
from tests import shell
from tests.system.containers import Docker

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]  # the first test waits for the build

MAIN = "/data/cifar10_main.py"
SMALL = "--num-layers=8 --train-steps=20"
_BASE_PACKAGES = ("pip==", "setuptools==", "wheel==")  # the base image's own
SOMEONE = 1234  # user id that the image does not know


@pytest.fixture(scope="module")
def records(docker: Docker, image: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of records, written by a container that runs as the user of the tests."""
    folder = tmp_path_factory.mktemp("records")
    folder.chmod(0o755)
    mount = f"{folder}:/data/data"
    user = f"{os.getuid()}:{os.getgid()}"
    prepare = ["-m", "data_prep", "--source", "synthetic", "--synthetic-size", "500"]
    docker("run", "--rm", "--user", user, "-v", mount, image, *prepare)
    return folder


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An empty folder that belongs to SOMEONE."""
    folder = tmp_path / "output"
    folder.mkdir()
    os.chown(folder, SOMEONE, SOMEONE)
    return folder


def _not_readable_by_all(folder: Path) -> list[str]:
    """Returns the files that other users cannot read and the folders that they cannot enter."""
    modes = [(path, path.stat().st_mode, 0o5 if path.is_dir() else 0o4) for path in _walk(folder)]
    return [str(path) for path, mode, need in modes if mode & need != need]


def _walk(folder: Path) -> list[Path]:
    # Training removes old checkpoints while it runs.
    return [path for path in folder.rglob("*") if path.exists()]


# Says as JSON what the image has, and as whom it runs.
_LOOK = """\
import importlib.metadata, json, os, shutil
from cifar10.host.cpu import cpu_flags
from cifar10 import kernels
print(json.dumps({
    "code": " ".join(sorted(os.listdir("/data"))),
    "records": os.listdir("/data/data"),
    "ids": [os.getuid(), os.getgid()],
    "packages": [f"{dist.name}=={dist.version}" for dist in importlib.metadata.distributions()],
    "kernels": kernels.why_not(cpu_flags()),
    "compiler": shutil.which("c++"),
}))
"""


def test_the_image_has_the_code_and_only_what_the_lock_names_and_is_no_root(
    docker: Docker, image: str
) -> None:
    found = json.loads(docker("run", "--rm", image, "-c", _LOOK).splitlines()[-1])
    assert found["code"] == (
        "LICENSE __pycache__ cifar10 cifar10_main.py cifar10_program data data_prep output "
        "requirements-gpu.lock requirements-gpu.txt requirements.lock requirements.txt"
    )
    assert (found["records"], found["compiler"]) == ([], None)
    assert found["ids"] == [1000, 1000]
    installed = {name.lower().replace("_", "-") for name in found["packages"]}
    lock = (shell.ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^(\S+==\S+)", lock, re.MULTILINE))
    assert installed - locked <= {name for name in installed if name.startswith(_BASE_PACKAGES)}
    assert "tensorflow==2.15.1" in installed
    if kernels.why_impossible(cpu_flags()) is None:
        assert found["kernels"] is None


# Looks at every file and folder of the code; a root without capabilities is as its own user here.
_WRITABLE = """\
import os
for folder, _, names in os.walk("/data"):
    if not folder.startswith(("/data/data", "/data/output")):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            if os.access(path, os.W_OK):
                print(path)
"""


@pytest.mark.parametrize("user", ["1000:1000", f"{SOMEONE}:{SOMEONE}", "0:0", "1000:0"])
def test_nobody_can_write_to_the_code(docker: Docker, image: str, user: str) -> None:
    assert docker("run", "--rm", "--cap-drop=ALL", "--user", user, image, "-c", _WRITABLE) == ""


def test_the_image_alone_shows_the_help(docker: Docker, image: str) -> None:
    assert "--train-batch-size" in docker("run", "--rm", image)


def test_records_and_results_live_in_named_volumes(docker: Docker, image: str) -> None:
    data, results = ("-v", "records:/data/data"), ("-v", "results:/data/output")
    prepare = ["-m", "data_prep", "--source", "synthetic", "--synthetic-size", "100"]
    docker("run", "--rm", *data, image, *prepare)
    train = (MAIN, "--model=mlp", "--train-batch-size=16", "--train-steps=2")
    docker("run", "--rm", *data, *results, image, *train)
    read = "print(open('/data/output/result.json').read())"
    shown = docker("run", "--rm", "--user", str(SOMEONE), *results, image, "-c", read)
    assert json.loads(shown)


# README's command.
_RUN = (
    'docker run --rm --user "$(id -u):$(id -g)" -v "$PWD/data:/data/data" '
    '-v "$PWD/output:/data/output" cifar10 /data/cifar10_main.py --train-batch-size=16'
)


def test_the_output_belongs_to_the_user_who_runs_it(
    docker: Docker, records: Path, output: Path
) -> None:
    here = output.parent
    (here / "data").symlink_to(records)
    # The tests run as root, and files of root would prove nothing.
    command = _RUN.replace("$(id -u):$(id -g)", f"{SOMEONE}:{SOMEONE}")
    shell.run(f"mkdir -p output && {command} {SMALL}", here, env=docker.env)
    assert (output / "report.html").exists()
    assert {path.stat().st_uid for path in _walk(output)} == {SOMEONE}
    assert _not_readable_by_all(output) == []


def test_an_output_folder_it_may_not_write_is_one_clear_line(
    docker: Docker, image: str, records: Path, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    mounts = ("-v", f"{records}:/data/data", "-v", f"{tmp_path}:/data/output")
    shown = docker("run", "--rm", *mounts, image, MAIN, *SMALL.split(), exit_code=2)
    assert len(shown.strip().splitlines()) == 1
    assert "--output-dir" in shown
    assert "Permission denied" in shown


def test_output_is_readable_while_it_trains_and_stop_saves(
    docker: Docker, image: str, records: Path, output: Path
) -> None:
    mounts = ("-v", f"{records}:/data/data", "-v", f"{output}:/data/output")
    # No checkpoint is due after the first one, so a later one is that of the stop.
    endless = ["--num-layers=8", "--train-steps=1000000", "--checkpoint-steps=1000000"]
    name = "stopped"
    docker("run", "-d", "--name", name, "--user", str(SOMEONE), *mounts, image, MAIN, *endless)
    try:
        deadline = time.monotonic() + 120
        while "images/s" not in docker("logs", name):
            assert time.monotonic() < deadline, docker("logs", name)
            time.sleep(0.5)
        assert _saved_steps(output) == [0]
        assert _not_readable_by_all(output) == []
        docker("stop", "--time", "60", name)
        code = docker("inspect", "--format", "{{.State.ExitCode}}", name).strip()
        assert code == "143", docker("logs", name)
        assert max(_saved_steps(output)) > 0
    finally:
        docker("rm", "--force", name)


def _saved_steps(output: Path) -> list[int]:
    return [int(path.stem.split("-")[1]) for path in output.glob("model.ckpt-*.index")]
