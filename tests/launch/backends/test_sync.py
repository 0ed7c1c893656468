"""`sync: true` copies a checkout; tests/system/test_launch_ssh.py copies one over ssh."""

import os
import time
from pathlib import Path

import pytest

from launch.backends.ssh.sync import command, sync_code
from launch.cluster.host_list import from_hosts
from launch.errors import HostError, LaunchError
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


BANNER = "Authorized users only.\n"
CLOSED = "rsync: connection unexpectedly closed (0 bytes received so far) [sender]\n"


@pytest.mark.parametrize(
    ("code", "errors", "words"),
    [
        (
            255,
            BANNER
            + "ann@node1: Permission denied (publickey).\n"
            + CLOSED
            + "rsync error: unexplained error (code 255) at io.c(228) [sender=3.2.7]\n",
            "login refused; install your key: ssh-copy-id node1",
        ),
        (
            127,
            BANNER
            + "sh: 1: rsync: not found\n"
            + CLOSED
            + "rsync error: remote command not found\n",
            "it has no rsync; install it there, or leave sync out",
        ),
        (
            11,
            BANNER
            + 'rsync: [Receiver] mkdir "/x" failed: Permission denied (13)\n'
            + "rsync error: error in file IO (code 11) at main.c(791) [Receiver=3.2.7]\n",
            'rsync exit code 11: rsync: [Receiver] mkdir "/x" failed: Permission denied (13)',
        ),
        (
            12,  # instead of 255, if ssh ends a moment after rsync
            "ssh: connect to host node1 port 22: No route to host\n" + CLOSED,
            "there is no way to it; is it up, and on this network?",
        ),
        (
            12,
            "cat: /etc/motd.d/x: Permission denied\nsh: 1: rsync: not found\n" + CLOSED,
            "it has no rsync; install it there, or leave sync out",
        ),
        (
            12,
            "sh: 1: /usr/bin/rsync: Permission denied\n" + CLOSED,
            "rsync exit code 12: sh: 1: /usr/bin/rsync: Permission denied",
        ),
        (12, CLOSED, f"rsync exit code 12: {CLOSED.strip()}"),
        (1, "", "rsync exit code 1: no reason given"),
    ],
)
def test_a_copy_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, errors: str, words: str
) -> None:
    (tmp_path / "errors").write_text(errors)
    (tmp_path / "rsync").write_text(f"#!/bin/sh\ncat {tmp_path}/errors >&2\nexit {code}\n")
    (tmp_path / "rsync").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(HostError) as failure:
        sync_code(from_hosts("node1").hosts)
    assert str(failure.value) == f"node1: {words}"


@pytest.mark.parametrize("times", [4, 5])
def test_a_copy_to_a_host_that_is_busy_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr("launch.connect.tries.PAUSE_SECS", (0.01, 0.02))
    tries = tmp_path / "tries"
    closed = "kex_exchange_identification: Connection closed by remote host"
    (tmp_path / "rsync").write_text(
        f"#!/bin/sh\necho >> {tries}\n[ $(wc -l < {tries}) -gt {times} ] && exit 0\n"
        f"echo {closed} >&2; exit 255\n"
    )
    (tmp_path / "rsync").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if times == 4:
        sync_code(from_hosts("node1").hosts)
    else:
        with pytest.raises(HostError, match="^node1: it, or a jump host, closed the connection"):
            sync_code(from_hosts("node1").hosts)
    assert tries.read_text() == "\n" * 5


def test_a_signal_ends_the_copies_at_once(launcher: Launcher, tmp_path: Path) -> None:
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
    assert interrupt(process) == ""
    assert time.monotonic() - since < 60  # seconds; the copies would last 300
    assert process.returncode == 130
    pids = begun.read_text().split()
    assert len(pids) == 16
    wait_for(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], "their end", 10)
