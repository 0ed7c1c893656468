"""Ports that the launcher has chosen, in a network of its own whose other ports are all in use."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

# Holds 150 of the 200 ports that outgoing connections may get, then connects until it cannot.
_IN_RANGE = """\
import json, socket
from launch.agent import tcp_ports
held = [tcp_ports.hold_port(port) for port in range(20000, 20150)]
server = socket.create_server(("127.0.0.1", 30000))
calls = []
try:
    while True:
        calls.append(socket.create_connection(("127.0.0.1", 30000)))
except OSError:
    used = sorted(call.getsockname()[1] for call in calls)
bound = [socket.socket() for _ in range(300)]
for each in bound:
    try:
        each.bind(("127.0.0.1", 0))
    except OSError:
        continue
    used.append(each.getsockname()[1])
free = []
for port in range(20000, 20150):
    tcp_ports.listen(port).close()
    free.append(port)
chosen = [one.getsockname()[1] for one in tcp_ports.hold(300)]
print(json.dumps({"used": used, "free": free, "chosen": chosen}))
"""


def test_neither_outgoing_connections_nor_the_kernels_choice_take_a_held_port(root: Path) -> None:
    range_file = "/proc/sys/net/ipv4/ip_local_port_range"
    script = f'ip link set lo up; echo 20000 20199 >{range_file}; exec {sys.executable} -c "$0"'
    command = ["unshare", "--net", "sh", "-c", script, _IN_RANGE]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, timeout=120, check=True)
    found = json.loads(done.stdout)
    assert set(found["used"]) <= set(range(20150, 20200))
    assert len(set(found["used"])) >= 25  # the kernel prefers every second port
    assert found["free"] == list(range(20000, 20150))
    assert len(set(found["chosen"])) == 300
    assert not set(found["chosen"]) & set(range(20000, 20200))
