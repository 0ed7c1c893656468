"""Creates network namespaces on bridges, each with an address of its own.

Only the network is separate: namespaces share this machine's files and process list. Needs Linux,
root, and Debian's iproute2.
"""

import contextlib
import ipaddress
import json
import os
import random
import re
import shutil
import subprocess
from typing import Optional

from testbeds.errors import TestbedError

_TRIED = f"testbedtry{os.getpid()}"


def why_not(*commands: str) -> Optional[str]:
    """Returns why this machine cannot have namespaces, or which command is missing; else None."""
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
    """Runs iproute2's `ip` and returns its output.

    Raises:
      subprocess.CalledProcessError: the command failed.
    """
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def unused_network() -> str:
    """Returns the first three numbers of a private /24 network that this machine does not use.

    It is a random one, since another process may look for one at the same time.
    """
    routes = json.loads(ip("-json", "-4", "route", "show", "table", "all"))
    words = [route["dst"] for route in routes if route["dst"] != "default"]
    used = [ipaddress.ip_network(word, strict=False) for word in words]
    networks = list(ipaddress.IPv4Network("10.78.0.0/16").subnets(new_prefix=24))
    random.shuffle(networks)
    for network in networks:
        if not any(network.overlaps(other) for other in used):
            return str(network.network_address).rpartition(".")[0]
    raise TestbedError("this machine has routes to all of 10.78.0.0/16")


def add_bridge(name: str) -> None:
    """Adds a bridge and brings it up."""
    ip("link", "add", name, "type", "bridge")
    ip("link", "set", name, "up")


def add(namespace: str, veth: str, address: str, bridge: str) -> None:
    """Adds a namespace and connects it to a bridge.

    Args:
      namespace: name of the namespace; its network device is `eth0`.
      veth: name of the device at the bridge's end, at most 15 characters.
      address: IP address of `eth0`, in a /24 network.
      bridge: name of the bridge.
    """
    ip("netns", "add", namespace)
    ip("link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    ip("link", "set", veth, "master", bridge, "up")
    ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        ip("-n", namespace, "link", "set", device, "up")


def remove(namespace: str, veth: str) -> None:
    """Removes a namespace and its device, if they exist."""
    for words in (("link", "del", veth), ("netns", "del", namespace)):
        with contextlib.suppress(subprocess.CalledProcessError):
            ip(*words)


def of_dead_processes(pattern: str) -> list[tuple[str, str]]:
    """Finds namespaces of processes that were killed before they could remove them.

    Args:
      pattern: regular expression of such a name; its group 1 is two letters and the process's id in
        hexadecimal digits.

    Returns:
      (name, group 1) of each.
    """
    names = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
    found = [(name, match[1]) for name in names if (match := re.fullmatch(pattern, name))]
    return [pair for pair in found if not os.path.exists(f"/proc/{int(pair[1][2:], 16)}")]


def remove_bridge(name: str) -> None:
    """Removes a bridge if it exists."""
    with contextlib.suppress(subprocess.CalledProcessError):
        ip("link", "del", name)


def enter(namespace: str) -> list[str]:
    """Returns the command prefix that runs a command in a namespace.

    It is not `ip netns exec`, since that hides /sys/fs/cgroup.
    """
    return ["nsenter", f"--net=/run/netns/{namespace}"]
