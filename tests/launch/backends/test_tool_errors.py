"""What tools say on standard error, and what we make of it."""

import os
from pathlib import Path

import pytest

from launch.backends.slurm import commands
from launch.backends.slurm.job import _explain as explain_srun
from launch.backends.ssh.transport import TRANSPORT as SSH
from launch.backends.tool_errors import last_line
from launch.cluster.model import Host
from launch.errors import HostError, LaunchError

CLOSED = "kex_exchange_identification: Connection closed by remote host"
HOST = Host("node1", "10.0.0.2", (), "/data", user="ann", agent_python="python3.11")


@pytest.mark.parametrize(
    ("code", "errors", "words"),
    [
        (
            255,
            "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.",
            "its host key is not the known one; if that is right: ssh-keygen -R node1",
        ),
        (
            255,
            "Host key verification failed.",
            "its host key is not known yet; look at it once by hand: ssh ann@node1",
        ),
        (
            255,
            "ann@node1: Permission denied (publickey).",
            "login refused; install your key: ssh-copy-id ann@node1",
        ),
        (
            127,
            "sh: 1: exec: python3.11: not found",
            "it has no python3.11 on PATH; name one with `agent_python:`",
        ),
        (
            1,
            "the agent needs Python 3.9 or newer, here is 3.6.8",
            "its python3.11 is older than 3.9; name one with `agent_python:`",
        ),
        (255, "Bad owner\nsomething new\n\n", "something new (ssh exit code 255)"),
        (255, "", "the connection ended (ssh exit code 255)"),
        (
            255,
            "kex_exchange_identification: Connection closed by remote host\nConnection closed by "
            "UNKNOWN port 65535",
            "it, or a jump host, closed the connection before the login; if there are too many "
            "logins at once, raise MaxStartups of the sshd there",
        ),
        (
            255,
            "ssh: connect to host jump port 22: Connection refused\n"
            "kex_exchange_identification: Connection closed by remote host",
            "nothing answers at its ssh port; is sshd running?",
        ),
        (
            255,
            ".bashrc: line 1: module: command not found\nConnection to node1 closed.",
            "Connection to node1 closed. (ssh exit code 255)",
        ),
        (
            1,
            "PermissionError: [Errno 13] Permission denied: '/tmp/x'",
            "PermissionError: [Errno 13] Permission denied: '/tmp/x' (ssh exit code 1)",
        ),
    ],
)
def test_what_ssh_says_is_explained(code: int, errors: str, words: str) -> None:
    assert SSH.explain(HOST, code, errors) == words


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        (
            "slurmstepd: error: execve(): python3.11: No such file or directory",
            "it has no python3.11 on PATH; name one with `agent_python:`",
        ),
        ("srun: error: Node failure on node1", "the node has failed"),
        ("srun: error: Job/step already completing or completed", "Slurm has ended the job"),
        ("srun: error: something new", "srun: error: something new (srun exit code 1)"),
        ("", "its step ended (srun exit code 1)"),
    ],
)
def test_what_srun_says_is_explained(errors: str, words: str) -> None:
    assert explain_srun(HOST, 1, errors) == words


@pytest.mark.parametrize(
    ("errors", "kind", "words"),
    [
        (
            "scancel: error: Unable to contact slurm controller",
            HostError,
            "scancel: Unable to contact slurm controller; does `sinfo` work here?",
        ),
        (
            "scancel: error: first\nscancel: error: Batch job submission failed: Invalid partition "
            "name specified",
            LaunchError,
            "scancel: Invalid partition name specified: no such partition; `sinfo` lists them: "
            "`partition:` under `slurm:`",
        ),
        ("scancel: error: something new", LaunchError, "scancel: something new"),
        ("", LaunchError, "scancel: exit code 1"),
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
    refusing.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{errors}\nEND\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(LaunchError) as raised:
        commands.cancel("7")
    assert (type(raised.value), str(raised.value)) == (kind, words)


def test_the_last_line_is_the_last_one_with_words() -> None:
    assert last_line("a\nb\n \n", "nothing") == "b"
    assert last_line(" \n", "nothing") == "nothing"


@pytest.mark.parametrize(
    ("code", "errors", "is_busy"),
    [
        (255, CLOSED, True),
        (255, "ssh_exchange_identification: read: Connection reset by peer", True),
        (1, CLOSED, False),
        (255, "ann@10.0.0.2: Permission denied (publickey).", False),
        # The login at a jump host was refused: another try is refused, too.
        (255, f"ann@jump: Permission denied (publickey).\n{CLOSED}", False),
        (255, "", False),
    ],
)
def test_a_connection_that_was_closed_before_the_login_may_be_made_a_little_later(
    code: int, errors: str, is_busy: bool
) -> None:
    assert SSH.is_busy(HOST, code, errors) == is_busy
