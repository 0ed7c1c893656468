import os
import subprocess
import sys

import pytest

from testbeds.errors import TestbedError
from testbeds.groups import Group, remove_dead, why_not

needs_groups = pytest.mark.skipif(why_not("cpu") is not None, reason=str(why_not("cpu")))
# Computes until a second has passed, and prints how many seconds of CPU it got.
BUSY = """
import time
end = time.monotonic() + 1
while time.monotonic() < end:
    pass
print(time.process_time())
"""


@pytest.fixture(name="name")
def its_name() -> str:
    return f"bm{os.getpid():x}m0"


@needs_groups
def test_a_process_gets_its_share_of_a_core_until_the_limit_ends(name: str) -> None:
    group = Group("cpu", name)
    try:
        group.limit_cpu(0.1)
        words = [*group.enter(), sys.executable, "-c", BUSY]
        held = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        group.limit_cpu(None)
        group.prefer_cpu()
        free = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    finally:
        group.remove()
    assert held < 0.3  # a tenth of a second, and what the kernel's clock tick lets it overdraw
    assert free > held


@needs_groups
def test_groups_of_dead_processes_are_removed_and_no_others(name: str) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, kept = Group("cpu", f"bm{ended.pid:x}m0"), Group("cpu", name)
    try:
        remove_dead("cpu", r"(bm[0-9a-f]+)m\d+")
        assert (left.path.exists(), kept.path.exists()) == (False, True)
    finally:
        kept.remove()


def test_a_controller_that_this_machine_lacks_is_named() -> None:
    with pytest.raises(TestbedError, match="no control group /sys/fs/cgroup/"):
        Group("none", "bm1m0")
