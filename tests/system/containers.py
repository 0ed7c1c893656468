"""A `docker` command for machines that have no Docker engine and no image registry.

It is a wrapper around podman with settings, storage and a base image of its own, all in one folder,
so that README's commands run unchanged. The wrapper adds what a test machine needs: a base image
from Debian packages, the machine's pip settings during a build, and no network during a run.

Needs root and Debian's podman, buildah, runc and mmdebstrap.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

BASE_IMAGE = "localhost/python:3.11-slim"
_SUITE = "bookworm"  # Debian 12, whose python3 is 3.11

# runc, since crun refuses machines with both cgroup versions. Without these limits, podman would
# try to raise the hard limits of a machine that is itself a container.
_CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""

_STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{home}/storage"
runroot = "{home}/run"
"""

_DOCKER = """\
#!/bin/sh
export CONTAINERS_CONF={home}/containers.conf CONTAINERS_STORAGE_CONF={home}/storage.conf
verb=$1
shift
case "$verb $*" in
  build*) exec podman build --isolation chroot --build-arg BASE_IMAGE={base} {mounts} "$@" ;;
  run*--network=*) exec podman run "$@" ;;
  run*) exec podman run --network none "$@" ;;
  *) exec podman "$verb" "$@" ;;
esac
"""


class Docker:
    """The wrapper and its storage; `import_base_image` comes first, `system reset` last.

    Args:
      home: a new folder, whose path is short: `podman container cleanup`, which every container
        calls at its end, refuses a `runroot` of more than 50 characters.

    Attributes:
      command: path of the wrapper, which needs no environment variables.
      env: environment variables for a command that calls `docker`.
    """

    def __init__(self, home: Path) -> None:
        assert len(str(home / "run")) <= 50, home
        self._home = home
        (home / "bin").mkdir(parents=True)
        (home / "containers.conf").write_text(_CONTAINERS_CONF)
        (home / "storage.conf").write_text(_STORAGE_CONF.format(home=home))
        self.command = home / "bin" / "docker"
        mounts = " ".join(f"-v {path}:{inside}:ro" for path, inside in _pip_mounts(home).items())
        self.command.write_text(_DOCKER.format(home=home, base=BASE_IMAGE, mounts=mounts))
        self.command.chmod(0o755)
        self.env = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}"}

    def __call__(self, *arguments: str, exit_code: int = 0) -> str:
        """Runs `docker ARGUMENTS` and returns its output, both streams.

        Raises:
          AssertionError: the command ended with another exit code.
        """
        done = subprocess.run(
            ["docker", *arguments],
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        output = done.stdout
        assert done.returncode == exit_code, (
            f"docker {' '.join(arguments)}: exit code {done.returncode}\n{output[-4000:]}"
        )
        return output

    def import_base_image(self) -> None:
        """Makes the base image of Debian packages."""
        archive = self._home / "base.tar"
        packages = "python3,python3-venv,python3-pip,ca-certificates,python-is-python3"
        subprocess.run(
            [
                "mmdebstrap",
                "--quiet",
                "--format=tar",
                "--variant=minbase",
                f"--include={packages}",
                # As in the official image, pip may install packages system-wide.
                '--customize-hook=rm -f "$1"/usr/lib/python3.11/EXTERNALLY-MANAGED',
                _SUITE,
                str(archive),
                _debian_mirror(),
            ],
            check=True,
            timeout=600,
        )
        self("import", "--quiet", str(archive), BASE_IMAGE)
        archive.unlink()


def _debian_mirror() -> str:
    """Returns the URL of this machine's Debian mirror, from the settings of apt."""
    words = ["apt-get", "indextargets", "--format", "$(SITE)"]
    sites = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return next(site for site in sites.splitlines() if re.search("/debian/?$", site))


def _pip_mounts(home: Path) -> dict[str, str]:
    """Writes a pip.conf with this machine's pip settings, and finds the files that they name.

    Returns:
      path on this machine -> path inside the build container.
    """
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    settings = {}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        settings[name.split(".", 1)[1]] = str(ast.literal_eval(value)).split()
    conf = home / "pip.conf"
    lines = [f"{name} = {' '.join(values)}" for name, values in settings.items()]
    conf.write_text("\n".join(["[global]", *lines]) + "\n", encoding="utf-8")
    mounts = {str(conf): "/etc/pip.conf"}
    for word in (word for values in settings.values() for word in values):
        # Mount the folder of a local index, since its files are in the same folder.
        path = str(Path(word[len("file://") :]).parent) if word.startswith("file://") else word
        if path.startswith("/") and Path(path).exists():
            mounts[path] = path
    return mounts
