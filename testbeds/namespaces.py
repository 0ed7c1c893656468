"""Network namespaces of this machine on bridges, each with an address: its own network and no more.

They share this machine's files and process list. Linux, root, and Debian's iproute2.
"""

import contextlib
import os
import shutil
import subprocess
from typing import Optional

_TRIED = "testbedtry"


def why_not(*commands: str) -> Optional[str]:
    """Why there can be none here, or what is missing of `commands`; None if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    wanted = ("ip", "nsenter", *commands)
    missing = [name for name in wanted if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}; see testbeds/install_packages.sh"
    try:
        ip("netns", "add", _TRIED)
    except subprocess.CalledProcessError as error:
        return f"no network namespaces: {error.stderr.strip()}"
    ip("netns", "del", _TRIED)
    return None


def ip(*words: str) -> str:
    """Runs iproute2's `ip`; CalledProcessError if it fails."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def add_bridge(name: str) -> None:
    """Adds a bridge and brings it up."""
    ip("link", "add", name, "type", "bridge")
    ip("link", "set", name, "up")


def add(namespace: str, veth: str, address: str, bridge: str) -> None:
    """Adds a namespace on a bridge.

    Args:
      namespace: its name; its own network device is `eth0`.
      veth: name of the other end of that, at most 15 letters.
      address: of `eth0`, in a network of 256.
      bridge: what `veth` is in.
    """
    ip("netns", "add", namespace)
    ip("link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    ip("link", "set", veth, "master", bridge, "up")
    ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        ip("-n", namespace, "link", "set", device, "up")


def remove(namespace: str, veth: str) -> None:
    """Removes a namespace and its device, as far as they are there."""
    for words in (("link", "del", veth), ("netns", "del", namespace)):
        with contextlib.suppress(subprocess.CalledProcessError):
            ip(*words)


def remove_bridge(name: str) -> None:
    """Removes a bridge if it is there."""
    with contextlib.suppress(subprocess.CalledProcessError):
        ip("link", "del", name)


def enter(namespace: str) -> list[str]:
    """The words before a command that is to run in a namespace.

    Not `ip netns exec`, which hides /sys/fs/cgroup.
    """
    return ["nsenter", f"--net=/run/netns/{namespace}"]
