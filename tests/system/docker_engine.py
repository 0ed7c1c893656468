"""A real Docker engine from Debian's packages, unpacked into a folder without installing them.

It has storage and a socket of its own, and does not change the machine's network: its containers
use the host's network. Needs root, apt-get and runc.
"""

import os
import shutil
import subprocess
from pathlib import Path

from tests.launch.launcher import wait_for

_PACKAGES = ("docker.io", "containerd")

_CLIENT = """\
#!/bin/sh
export DOCKER_HOST=unix://{home}/docker.sock
exec {home}/files/usr/bin/docker "$@"
"""


class DockerEngine:
    """dockerd and its client, as a context manager that starts and removes them.

    Args:
      home: folder for all their files.

    Attributes:
      command: path of the client, which needs no environment variables.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self.command = home / "docker"

    def __enter__(self) -> "DockerEngine":
        home = self._home
        files = home / "files"
        files.mkdir(parents=True)
        home.chmod(0o755)  # apt-get downloads as another user
        _run("apt-get", "download", "-q", *_PACKAGES, cwd=home)
        for package in home.glob("*.deb"):
            _run("dpkg", "-x", package.name, "files", cwd=home)
            package.unlink()
        self.command.write_text(_CLIENT.format(home=home))
        self.command.chmod(0o755)
        path = f"{files}/usr/bin:{files}/usr/sbin:{os.environ['PATH']}"
        with (home / "dockerd.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    f"{files}/usr/sbin/dockerd",
                    f"--data-root={home}/data",
                    f"--exec-root={home}/exec",
                    f"--pidfile={home}/docker.pid",
                    f"--host=unix://{home}/docker.sock",
                    "--containerd-namespace=launch-tests",
                    *("--bridge=none", "--iptables=false", "--ip6tables=false"),
                    *("--ip-forward=false", "--ip-masq=false"),
                ],
                env={**os.environ, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_for(self._answers, f"Docker engine: {home / 'dockerd.log'}", 60)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)
        # dockerd leaves its network namespaces mounted, so the folder could not be removed.
        for mounted in (self._home / "exec" / "netns").glob("*"):
            subprocess.run(["umount", mounted], check=True)
        shutil.rmtree(self._home)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._home / "dockerd.log").read_text()
        done = subprocess.run([self.command, "ps"], capture_output=True, check=False)
        return done.returncode == 0


def _run(*words: str, cwd: Path) -> None:
    subprocess.run(words, cwd=cwd, check=True, capture_output=True, timeout=300)
