"""How agents are reached, and where the logs of runs are."""

import shutil
import subprocess
from pathlib import Path

import pytest

from launch.backends.docker.backend import TRANSPORT as DOCKER
from launch.backends.local.backend import TRANSPORT as LOCAL
from launch.backends.ssh.transport import TRANSPORT as SSH
from launch.cluster.model import Host


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
