"""Simulated hosts: network namespaces on one bridge, each with an sshd of its own.

They share this machine's files and process list, in which the tests look for leftovers. Names of
namespaces and devices contain the id of the process that made them, so that several processes can
have such hosts at the same time. Needs root, and Debian's openssh-server and iproute2.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Optional

from testbeds import namespaces
from testbeds.errors import TestbedError
from testbeds.namespaces import ip
from testbeds.process_list import command_of

_SSHD = "/usr/sbin/sshd"
_SSHD_START_SECS = 30.0

_SSH_CONFIG = """\
Host node* {network}.*
  User root
  IdentityFile {folder}/id
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
"""


def why_not() -> Optional[str]:
    """Returns why this machine cannot provide such hosts; None if it can."""
    return namespaces.why_not("ssh", "ssh-keygen", _SSHD)


class Nodes:
    """The hosts `node1` to `nodeN`, as a context manager that creates and removes them.

    Args:
      folder: folder for keys, logs and an `ssh` wrapper that knows the nodes.
      count: number of nodes.

    Raises:
      TestbedError: this machine cannot provide the nodes.

    Attributes:
      env: environment variables with which a command's `ssh` reaches the nodes.
      network: first three numbers of the nodes' addresses.
      gateway: this machine's address in that network.
    """

    def __init__(self, folder: Path, count: int = 3) -> None:
        self.folder = folder
        self.network = namespaces.unused_network()
        self.gateway = f"{self.network}.254"
        self.names = [f"node{i + 1}" for i in range(count)]
        self._mark = f"lt{os.getpid():x}"
        self._bridge = f"{self._mark}-br"
        self.env = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}

    def address(self, name: str) -> str:
        """Returns the IP address of a node."""
        return f"{self.network}.{int(name[4:])}"

    def namespace(self, name: str) -> str:
        """Returns the name of a node's network namespace, and of the device at the bridge's end."""
        return f"{self._mark}-{name}"

    def __enter__(self) -> "Nodes":
        reason = why_not()
        if reason:
            raise TestbedError(reason)
        _remove_those_of_dead_processes()
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.kill(name)
            namespaces.remove(self.namespace(name), self.namespace(name))
        namespaces.remove_bridge(self._bridge)

    def _make(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        (self.folder / "bin").mkdir(parents=True)
        _keygen(self.folder / "id")
        namespaces.add_bridge(self._bridge)
        ip("addr", "add", f"{self.gateway}/24", "dev", self._bridge)
        config = _SSH_CONFIG.format(network=self.network, folder=self.folder)
        known = ""
        for name in self.names:
            address = self.address(name)
            config += f"Host {name}\n  HostName {address}\n"
            _keygen(self.folder / f"{name}.key")
            key = (self.folder / f"{name}.key.pub").read_text()
            known += f"{address} {' '.join(key.split()[:2])}\n"
            namespace = self.namespace(name)
            namespaces.add(namespace, namespace, address, self._bridge)
            self.start_sshd(name)
        (self.folder / "config").write_text(config)
        (self.folder / "known_hosts").write_text(known)
        wrapper = self.folder / "bin" / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/config "$@"\n')
        wrapper.chmod(0o755)

    def start_sshd(self, name: str, **more: str) -> None:
        """Starts a node's sshd, as when the node boots, and waits until it answers.

        Args:
          name: the node.
          **more: further options of sshd.

        Raises:
          TestbedError: it does not answer; with its processes and its log.
        """
        options = {
            "ListenAddress": self.address(name),
            "PidFile": "none",
            "AuthorizedKeysFile": f"{self.folder}/id.pub",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            **more,
        }
        words = [word for option in options.items() for word in ("-o", "=".join(option))]
        log, key = self.folder / f"{name}.log", self.folder / f"{name}.key"
        sshd = [_SSHD, "-f", "/dev/null", "-h", str(key), "-E", str(log), *words]
        enter = [*namespaces.enter(self.namespace(name)), "unshare", "-u", "sh", "-c"]
        subprocess.run([*enter, f'hostname {name}; exec "$@"', "sh", *sshd], check=True)
        # sshd binds its port only after it went to the background.
        deadline = time.monotonic() + _SSHD_START_SECS
        while True:
            try:
                socket.create_connection((self.address(name), 22), timeout=5).close()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    said = log.read_text() if log.exists() else "no log"
                    raise TestbedError(
                        f"the sshd of {name} does not answer at {self.address(name)}: {error}\n"
                        f"{self.processes(name)}\n{said}"
                    ) from None
                time.sleep(0.05)

    def cut(self, name: str) -> None:
        """Takes a node's link down: connections stall, as in a network partition."""
        ip("link", "set", self.namespace(name), "down")

    def heal(self, name: str) -> None:
        """Brings a node's link up again."""
        ip("link", "set", self.namespace(name), "up")

    def processes(self, name: str) -> dict[int, str]:
        """Returns a node's processes, its sshd included: pid -> command line."""
        found = {}
        for pid in ip("netns", "pids", self.namespace(name)).split():
            with contextlib.suppress(OSError):
                found[int(pid)] = command_of(int(pid))
        return found

    def kill(self, name: str) -> None:
        """Kills every process of a node at once, like a power cut."""
        _kill_all_in(self.namespace(name))


def _kill_all_in(namespace: str) -> None:
    for pid in ip("netns", "pids", namespace).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _remove_those_of_dead_processes() -> None:
    """Removes the nodes of processes that were killed before they could remove them."""
    for name, mark in namespaces.of_dead_processes(r"(lt[0-9a-f]+)-node\d+"):
        with contextlib.suppress(subprocess.CalledProcessError):
            _kill_all_in(name)
        namespaces.remove(name, name)
        namespaces.remove_bridge(f"{mark}-br")


def _keygen(path: Path) -> None:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
