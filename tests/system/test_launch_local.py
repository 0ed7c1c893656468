"""Jobs on this machine: a disk that is full or does not answer, and ports that are held."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.launcher import LOCAL, Launcher, cluster_file

pytestmark = pytest.mark.system


def test_a_full_disk_does_not_end_the_job_and_is_told(tmp_path: Path, small_disk: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.state = small_disk / "state"
    try:
        output = launcher.up((*LOCAL, "--workers", "1"), "--", "steps=20", "flood=2000")
        run_id = launcher.run_id()
        listed = launcher.verb("list")
    finally:
        launcher.end()
    lines = output.splitlines()
    full = f"{launcher.state / run_id}/output.log: No space left on device; it lacks lines"
    assert lines.count(full) == 1
    assert lines.count(f"[worker/0 localhost] line 1999 {'x' * 100}") == 1
    assert lines[-1] == "master/0 is done"
    assert listed.splitlines()[1].split()[:2] == [run_id, "done"]
    launcher.assert_nothing_left()


@pytest.fixture
def disk_that_can_stop(tmp_path: Path) -> Iterator[Path]:
    """A file system that `fsfreeze` can make wait with all that is written."""
    if os.geteuid() != 0 or not (shutil.which("mkfs.ext4") and shutil.which("fsfreeze")):
        pytest.skip("a file system of its own needs root, mkfs.ext4 and fsfreeze")
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    words = ["mount", "-o", "loop", str(image), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system of its own: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_does_not_answer_for_longer_than_the_lease_costs_only_time(
    tmp_path: Path, disk_that_can_stop: Path
) -> None:
    steps = 60  # They take 3 seconds: the tasks end while the disk does not answer.
    launcher = Launcher(tmp_path)
    launcher.state = disk_that_can_stop / "state"
    cluster = cluster_file(tmp_path, launcher, "limits: {lease_secs: 3}\n")
    try:
        process = launcher.start_up(cluster, "--", f"steps={steps}")
        launcher.wait_until_trains()
        subprocess.run(["fsfreeze", "--freeze", str(disk_that_can_stop)], check=True)
        try:
            time.sleep(6)
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", str(disk_that_can_stop)], check=True)
        output, _ = process.communicate(timeout=120)
    finally:
        launcher.end()
    assert process.returncode == 0, output
    assert output.splitlines()[-1] == "master/0 is done"
    log = launcher.log("master/0")
    assert [line for line in log.splitlines() if "step" in line] == [
        f"epoch 0.1/1  step {step}/{steps}  loss 1.9  512 images/s" for step in range(1, steps + 1)
    ]
    launcher.assert_nothing_left()


# Holds 150 of the 200 ports that outgoing connections may get in this network, then connects until
# it cannot.
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
for outgoing in bound:
    try:
        outgoing.bind(("127.0.0.1", 0))
    except OSError:
        continue
    used.append(outgoing.getsockname()[1])
free = []
for port in range(20000, 20150):
    tcp_ports.listen(port).close()
    free.append(port)
chosen = [holder.getsockname()[1] for holder in tcp_ports.hold(300)]
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
