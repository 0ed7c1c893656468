"""`sync: true` copies a checkout as `setup` does."""

import os
import signal
import time
from pathlib import Path

import pytest

from launch.backends.ssh.sync import sync_code
from launch.cluster.host_list import from_hosts
from launch.errors import HostError
from tests.launch.launcher import Launcher, interrupt, wait_for


def test_a_copy_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = "ann@node1: Permission denied (publickey)."
    (tmp_path / "ssh").write_text(f"#!/bin/sh\necho banner\necho '{refusal}' >&2\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(HostError) as failure:
        sync_code(from_hosts("node1").hosts)
    words = "node1: connection: login refused; install your key: ssh-copy-id node1"
    assert str(failure.value) == words


def test_a_host_that_waits_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ("say waits for process 5 on node7", "step code", "say 4 files copied", "done")
    said = "\n".join(f"echo 'cifar10-setup {line}'" for line in lines)
    (tmp_path / "ssh").write_text(f"#!/bin/sh\n{said}\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    sync_code(from_hosts("node1").hosts)
    assert capsys.readouterr().err == "node1: connection: waits for process 5 on node7\n"


def test_a_signal_ends_the_copies_at_once(launcher: Launcher, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "bin").mkdir()
    # As ssh, it may have a child: the command of a jump host.
    script = f"#!/bin/sh\nsleep 300 &\necho $! >> {begun}\nwait\n"
    (tmp_path / "bin" / "ssh").write_text(script)
    (tmp_path / "bin" / "ssh").chmod(0o755)
    launcher.env["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    hosts = [f"node{i}" for i in range(17)]  # one more than are copied to at once
    (tmp_path / "lab.yaml").write_text(f"hosts: [{', '.join(hosts)}]\nworkdir: /x\nsync: true\n")
    process = launcher.start_up(("--cluster", str(tmp_path / "lab.yaml")))
    wait_for(lambda: begun.exists() and begun.read_text().count("\n") == 16, "16 copies")
    since = time.monotonic()
    assert interrupt(process, signal.SIGINT) == ""
    assert time.monotonic() - since < 60  # seconds; the copies would last 300
    assert process.returncode == 128 + signal.SIGINT
    pids = begun.read_text().split()
    assert len(pids) == 16
    wait_for(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], "their end", 10)
