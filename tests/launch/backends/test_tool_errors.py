"""What tools such as ssh say on standard error, how ssh is called, and sync."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from launch.backends.docker.backend import TRANSPORT as DOCKER
from launch.backends.local.backend import TRANSPORT as LOCAL
from launch.backends.slurm import commands
from launch.backends.slurm.job import explain_srun
from launch.backends.ssh.sync import sync_code
from launch.backends.ssh.transport import TRANSPORT as SSH
from launch.cluster.host_list import from_hosts
from launch.cluster.model import Host
from launch.errors import HostError, LaunchError

UNKNOWN = "Host key verification failed."
CLOSED = "kex_exchange_identification: Connection closed by remote host"
HOST = Host("node1", "10.0.0.2", (), "/data", user="ann", agent_python="python3.11")


@pytest.mark.parametrize(
    ("code", "errors", "words"),
    [
        (255, f"REMOTE HOST IDENTIFICATION HAS CHANGED!\n{UNKNOWN}", "ssh-keygen -R node1"),
        (255, UNKNOWN, "look at it once by hand: ssh ann@node1"),
        (255, "ann@node1: Permission denied (publickey).", "login refused; install your key: ssh-"),
        (1, "the agent needs Python 3.9 or newer", "older than 3.9; name one with `agent_python:"),
        (255, CLOSED, "closed the connection before the login; if there are too many logins"),
        (255, "Bad owner\nsomething new\n\n", "something new (ssh exit code 255)"),
    ],
)
def test_what_ssh_says_is_explained(code: int, errors: str, words: str) -> None:
    assert words in SSH.explain(HOST, code, errors)


def test_what_srun_says_is_explained() -> None:
    assert explain_srun(HOST, 1, "srun: error: Node failure on node1") == "the node has failed"


@pytest.mark.parametrize(
    ("errors", "kind", "words"),
    [
        ("Unable to contact slurm controller", HostError, "; does `sinfo` work here?"),
        ("first\nscancel: error: Invalid partition name", LaunchError, ": no such partition; `sin"),
    ],
)
def test_what_slurm_refuses_is_explained(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    errors: str,
    kind: type[LaunchError],
    words: str,
) -> None:
    refusing = tmp_path / "scancel"
    refusing.write_text(f"#!/bin/sh\ncat >&2 <<'END'\nscancel: error: {errors}\nEND\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(LaunchError) as raised:
        commands.cancel("7")
    assert type(raised.value) is kind
    last = errors.rpartition("error: ")[2]
    assert str(raised.value).startswith(f"scancel: {last}{words}")


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
    lines = ("begun", "waits for process 5 on node7", "4 files copied", "done")
    said = "\n".join(f"echo 'cifar10-setup {line}'" for line in lines)
    (tmp_path / "ssh").write_text(f"#!/bin/sh\n{said}\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    sync_code(from_hosts("node1").hosts)
    assert capsys.readouterr().err == "node1: code: waits for process 5 on node7\n"


def test_agents_are_told_where_their_hosts_keep_the_logs_of_all_runs() -> None:
    assert SSH.host_logs("20260101-000000-abcd") == "~/.local/state/cifar10-launch/hosts"
    assert DOCKER.host_logs("20260101-000000-abcd") == "~/.local/state/cifar10-launch/hosts"
    assert LOCAL.host_logs("20260101-000000-abcd") is None  # the run's folder has them


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh")
def test_the_users_configuration_of_ssh_runs_nothing_else_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    settings = {
        "RemoteCommand": "tmux attach",
        "RequestTTY": "yes",
        "ControlMaster": "auto",
        "ControlPersist": "10m",
        "IgnoreUnknown": "UseKeychain",  # stays in force
        "UseKeychain": "yes",
        "Port": "2200",
    }
    config = tmp_path / "config"
    config.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    host = Host("node1", "node1", (("master", 1),), workdir="x")
    ssh, *words = SSH.command(host, ["python3"], "exec python3")
    command = [ssh, "-F", str(config), "-G", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = done.stdout.splitlines()
    assert {"port 2200", "requesttty false", "controlmaster false"} <= set(found)
    assert not [line for line in found if line.startswith("remotecommand")]
