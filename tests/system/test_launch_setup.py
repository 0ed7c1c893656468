"""Preparing two hosts over real ssh; both are on this machine, in folders of their own."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from launch.connect.preparing import code_files
from testbeds import nodes as machines
from testbeds.nodes import Nodes
from tests.launch.launcher import ROOT, Launcher, wait_for
from tests.launch.small_lock import NAME, write_small_lock

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    reason = machines.why_not()
    if reason:
        pytest.skip(reason)
    with Nodes(tmp_path_factory.mktemp("nodes") / "ssh", 2) as running:
        yield running


@pytest.fixture
def launcher(nodes: Nodes, tmp_path: Path) -> Iterator[Launcher]:
    """A launcher in a checkout of its own, whose lock has one small package."""
    launcher = Launcher(tmp_path, nodes.env)
    launcher.workdir = tmp_path / "here"
    launcher.workdir.mkdir()
    (launcher.workdir / "cifar10_main.py").write_text("print('trains')\n")
    (launcher.workdir / "cifar10").mkdir()
    (launcher.workdir / "cifar10" / "__init__.py").touch()
    (launcher.workdir / "data").mkdir()
    (launcher.workdir / "data" / "train.tfrecords").write_bytes(b"x" * 3_000_000)
    launcher.env["PYTHONPATH"] = str(ROOT)
    write_small_lock(launcher.workdir, tmp_path / "wheels")
    yield launcher
    launcher.end()


def described(launcher: Launcher, nodes: Nodes, python: str = ".venv/bin/python") -> Path:
    path = launcher.workdir.parent / "lab.yaml"
    lines = [
        f"- {{name: {name}, address: {nodes.address(name)}, workdir: {path.parent / name}}}\n"
        for name in nodes.names
    ]
    path.write_text(f"python: {python}\nhosts:\n{''.join(lines)}")
    return path


def start(launcher: Launcher, file: Path, *flags: str) -> "subprocess.Popen[str]":
    words = ["setup", "--cluster", str(file), "--requirements", NAME, *flags]
    process = subprocess.Popen(
        [sys.executable, "-m", "launch", *words],
        cwd=launcher.workdir,
        env=launcher.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    launcher._started.append(process)
    return process


def run(launcher: Launcher, file: Path, *flags: str, exit_code: int = 0) -> list[str]:
    process = start(launcher, file, *flags)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == exit_code, output
    return output.splitlines()


def test_bare_hosts_become_green_and_the_second_time_nothing_is_done(
    launcher: Launcher, nodes: Nodes
) -> None:
    file = described(launcher, nodes)
    lines = run(launcher, file)
    for name in nodes.names:
        assert f"{name}: code: 3 files copied" in lines
        assert f"{name}: venv: .venv made" in lines
        assert any(line.startswith(f"{name}: kernels: left out: ") for line in lines)
        assert f"{name}: records: 1 files copied" in lines
    assert lines[-1] == "everything is in place"
    again = run(launcher, file)
    for name in nodes.names:
        for words in ("venv: .venv is there", "records: are there"):
            assert f"{name}: {words}" in again
    # A package with another hash than the lock's fails on the host where it is installed.
    wheel = next((launcher.workdir.parent / "wheels").glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    (launcher.workdir.parent / "node2" / ".venv" / ".installed.lock").unlink()
    failed = run(launcher, file, exit_code=1)
    assert "problem: node2: venv: pip ended with exit code 1" in failed
    assert any("DO NOT MATCH THE HASHES" in line for line in failed)
    assert "node1: records: are there" in failed
    assert failed[-1] == "1 failed, 1 ready; the same command goes on where it was"


def test_ctrl_c_ends_what_runs_on_the_hosts(launcher: Launcher, nodes: Nodes) -> None:
    slow = launcher.workdir.parent / "slow"
    slow.write_text("#!/bin/sh\nsleep 600 &\nwait\n")
    slow.chmod(0o755)
    process = start(launcher, described(launcher, nodes, str(slow)))

    def sleeping(name: str) -> bool:
        return any("sleep 600" in words for words in nodes.processes(name).values())

    def idle(name: str) -> bool:
        return len(nodes.processes(name)) == 1  # its sshd

    for name in nodes.names:
        wait_for(partial(sleeping, name), f"the slow program on {name}")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 130
    assert output.splitlines()[-1] == "stopped; the same command goes on where it was"
    for name in nodes.names:
        wait_for(partial(idle, name), f"an idle {name}")


def test_a_host_that_is_not_there_is_named(launcher: Launcher, nodes: Nodes) -> None:
    file = described(launcher, nodes, "python3")
    file.write_text(f"{file.read_text()}- {{name: {nodes.network}.99, workdir: /nowhere}}\n")
    lines = run(launcher, file, exit_code=1)
    reason = "it does not answer; is it up, and in reach?"
    assert f"problem: {nodes.network}.99: connection: {reason}" in lines
    assert lines[-1] == "1 failed, 2 ready; the same command goes on where it was"


def test_training_can_be_imported_from_what_a_host_gets(tmp_path: Path) -> None:
    there = tmp_path / "there"
    for name, path in code_files(ROOT).items():
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there / name)
    code = "import cifar10.main, cifar10.run.results, data_prep.cli"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=there, env={}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
