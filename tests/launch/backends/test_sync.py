"""`sync: true` copies a checkout; tests/system/test_launch_ssh.py copies one over ssh."""

import os
import signal
import time
from pathlib import Path

import pytest

from launch.backends.ssh.sync import command, sync_code
from launch.cluster.host_list import from_hosts
from launch.errors import LaunchError
from tests.launch.launcher import Launcher, interrupt, wait_for


def test_an_installed_package_is_not_copied_to_hosts(tmp_path: Path) -> None:
    with pytest.raises(LaunchError) as refusal:
        sync_code(from_hosts("a").hosts, tmp_path)
    assert str(refusal.value) == (
        f"sync copies a checkout, but {tmp_path} has no cifar10_main.py; run the launcher in a "
        "checkout, or leave sync out and install the same package on the hosts"
    )


@pytest.mark.parametrize(
    ("workdir", "place"),
    [
        ("/srv/x y", "/srv/x y/"),
        ("x", "x/"),
        ("~/x/y", "x/y/"),
        ("~//x", "x/"),
        ("~/", "./"),
        ("~", "./"),
    ],
)
def test_a_folder_in_the_home_stays_in_the_home(workdir: str, place: str) -> None:
    (host,) = from_hosts("a", workdir=workdir).hosts
    assert command(host, Path("/nowhere"))[-1] == f"a:{place}"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_copies_at_once(
    launcher: Launcher, tmp_path: Path, signum: signal.Signals
) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "bin").mkdir()
    # As rsync, it has a child: ssh.
    script = f"#!/bin/sh\nsleep 300 &\necho $! >> {begun}\nwait\n"
    (tmp_path / "bin" / "rsync").write_text(script)
    (tmp_path / "bin" / "rsync").chmod(0o755)
    launcher.env["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    hosts = [f"node{i}" for i in range(17)]  # one more than are copied to at once
    (tmp_path / "lab.yaml").write_text(f"hosts: [{', '.join(hosts)}]\nworkdir: /x\nsync: true\n")
    process = launcher.start_up(("--cluster", str(tmp_path / "lab.yaml")))
    wait_for(lambda: begun.exists() and begun.read_text().count("\n") == 16, "16 copies")
    since = time.monotonic()
    assert interrupt(process, signum) == ""
    assert time.monotonic() - since < 60  # seconds; the copies would last 300
    assert process.returncode == 128 + signum
    pids = begun.read_text().split()
    assert len(pids) == 16
    wait_for(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], "their end", 10)
