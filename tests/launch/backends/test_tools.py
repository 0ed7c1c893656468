"""What tools such as ssh say on standard error, and how ssh is called."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from launch.backends.slurm.job import explain_srun
from launch.backends.slurm.scheduler import ask
from launch.backends.ssh import TRANSPORT as SSH
from launch.cluster.model import Host
from launch.errors import HostError, LaunchError, NotHereError
from tests.launch.launcher import put_script

UNKNOWN = "Host key verification failed."
CLOSED = "kex_exchange_identification: Connection closed by remote host"
NO_NAME = "ssh: Could not resolve hostname node1: Name or service not known"
HOST = Host("node1", "10.0.0.2", (), "/data", user="ann", agent_python="python3.11")


@pytest.mark.parametrize(
    ("code", "errors", "words"),
    [
        (255, f"REMOTE HOST IDENTIFICATION HAS CHANGED!\n{UNKNOWN}", "ssh-keygen -R node1"),
        (255, UNKNOWN, "its host key is not known; look at it once: ssh ann@node1"),
        (255, "ann@node1: Permission denied (publickey).", "login refused; install your key: ssh-"),
        (1, "the agent needs Python 3.9 or newer", "its python3.11 is older than 3.9; say"),
        (255, f"{NO_NAME}\r\n{CLOSED}", f"{NO_NAME}; try: ssh ann@node1"),
        (
            255,
            "ssh: connect to host a: Connection timed out",
            "it does not answer; is it up, and in",
        ),
        (255, CLOSED, "closed before the login; raise MaxStartups of its sshd"),
        (255, "Bad owner\nsomething new\n\n", "something new (ssh exit code 255)"),
    ],
)
def test_what_ssh_says_is_explained(code: int, errors: str, words: str) -> None:
    assert words in SSH.explain(HOST, code, errors)


def test_what_srun_says_is_explained() -> None:
    missing = "slurmstepd: error: execve(): python3.11: No such file or directory"
    assert explain_srun(HOST, 2, missing).startswith("it has no python3.11 on PATH")
    said = "srun: error: Node failure on node1"
    assert explain_srun(HOST, 1, said) == f"{said} (srun exit code 1)"


@pytest.mark.parametrize(
    ("tool", "errors", "kind", "words"),
    [
        ("squeue", "Unable to contact slurm controller", HostError, "; does `sinfo` work here?"),
        # Nothing can have been submitted.
        ("sbatch", "Could not establish a configuration source", NotHereError, "; does `sinfo`"),
        ("scancel", "Invalid job id 7", HostError, ""),
        ("sbatch", "first\nsbatch: error: Invalid qos", LaunchError, "; `sinfo` lists what there"),
    ],
)
def test_what_slurm_refuses_is_explained(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    errors: str,
    kind: type[LaunchError],
    words: str,
) -> None:
    put_script(tmp_path / tool, f"cat >&2 <<'END'\n{tool}: error: {errors}\nEND\nexit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(LaunchError) as raised:
        ask(tool)
    assert type(raised.value) is kind
    assert str(raised.value).startswith(f"{tool}: {errors.rpartition('error: ')[2]}{words}")


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
    ssh, *words = SSH.command(host, ["python3"], "exec python3", 300.0)
    command = [ssh, "-F", str(config), "-G", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = done.stdout.splitlines()
    assert {"port 2200", "requesttty false", "controlmaster false"} <= set(found)
    # ssh keeps a silent connection for longer than the lease of 300 s.
    assert {"serveraliveinterval 150", "serveralivecountmax 4"} <= set(found)
    assert not [line for line in found if line.startswith("remotecommand")]
