"""Delays the end of a ps while trainers are connected to it, so that the master can save.

Deleting a TFJob deletes all of its pods at once. This script is the preStop hook of the ps: the
manifest contains its text, and Kubernetes runs it in the ps's container before it sends SIGTERM.
The script checks connections, not names, because the cluster's DNS drops the names of pods that are
ending. Its argument is the number of seconds after which it gives up.
"""

import json
import os
import sys
import time

FIRST_SECS = 1.0  # the minimum delay, for trainers between two connections
_ESTABLISHED = "01"  # a connection's state in the kernel's table


def own_port() -> int:
    """Returns the port of this container's task, from its TF_CONFIG."""
    config = json.loads(os.environ["TF_CONFIG"])
    task = config["task"]
    return int(config["cluster"][task["type"]][task["index"]].rpartition(":")[2])


def is_connected(port: int) -> bool:
    """Returns whether a TCP connection to a port of this pod is established."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(table):
            with open(table, encoding="ascii") as lines:
                rows = [line.split() for line in lines]
            if any(row[1].endswith(f":{port:04X}") and row[3] == _ESTABLISHED for row in rows):
                return True
    return False


if __name__ == "__main__":
    began = time.monotonic()
    while time.monotonic() < began + float(sys.argv[1]):
        if time.monotonic() > began + FIRST_SECS and not is_connected(own_port()):
            break
        time.sleep(0.2)
