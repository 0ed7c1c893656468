"""What the system says of the CPU."""

import os
import shutil
import subprocess
import sys
from typing import Any, Optional

import pytest

from cifar10.host import cpu
from testbeds.processes import ROOT

INFO = """processor\t: 0
model name\t: A CPU @ 3 GHz
flags\t\t: fpu avx512_bf16

processor\t: 1
model name\t: Another
flags\t\t: sse
"""


def test_name_and_flags_are_the_first_cpus(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text(INFO)
    assert cpu.cpu_name(str(path)) == "A CPU @ 3 GHz"
    assert cpu.cpu_flags(str(path)) == {"fpu", "avx512_bf16"}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_cores_are_those_that_the_process_may_run_on():
    before = os.sched_getaffinity(0)
    assert cpu.count_cores("/nowhere") == len(before)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert cpu.count_cores("/nowhere") == 1
    finally:
        os.sched_setaffinity(0, before)


ALL_CORES = cpu.count_cores("/nowhere")


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "150000 100000\n"}, min(2, ALL_CORES)),
        ({"cpu.max": "max 100000\n"}, ALL_CORES),
        ({"cpu.max": "unheard of\n"}, ALL_CORES),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, ALL_CORES),
        ({}, ALL_CORES),
    ],
)
def test_cores_are_no_more_than_the_containers_quota(tmp_path, files, cores):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert cpu.count_cores(str(tmp_path)) == cores


# Where several processes train on a host.


class Host:
    """Stands in for a machine with more cores than this one may have."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cgroup_dir: Any) -> None:
        self._patch, self._cgroup_dir = monkeypatch, cgroup_dir

    def cores(
        self,
        trainers: int,
        own: int,
        parent: int,
        machine: int = 16,
        quota: Optional[float] = None,
        first: bool = False,
        said: Optional[bool] = None,
    ) -> int:
        """What a trainer takes, if it and its parent may run on the first so many cores."""
        masks = {0: set(range(own)), 7: set(range(parent))}
        self._patch.setattr(os, "sched_getaffinity", masks.__getitem__, raising=False)
        self._patch.setattr(os, "cpu_count", lambda: machine)
        self._patch.setattr(os, "getppid", lambda: 7)
        self._patch.setattr(os, "getpid", lambda: 1 if first else 8)
        granted = "max" if quota is None else str(int(quota * 100_000))
        (self._cgroup_dir / "cpu.max").write_text(f"{granted} 100000\n")
        return cpu.count_cores(str(self._cgroup_dir), trainers, said)


@pytest.fixture
def host(monkeypatch, tmp_path):
    return Host(monkeypatch, tmp_path)


def test_trainers_share_out_a_whole_machine(host):
    assert host.cores(trainers=4, own=16, parent=16) == 4
    assert host.cores(trainers=3, own=16, parent=16) == 5
    assert host.cores(trainers=32, own=16, parent=16) == 1


def test_an_affinity_that_a_trainer_has_alone_is_all_its_own(host):
    assert host.cores(trainers=4, own=4, parent=16) == 4


@pytest.mark.parametrize(("own", "parent"), [(4, 16), (4, 4), (16, 16)])
def test_whoever_started_a_trainer_may_say_whose_its_affinity_is(host, own, parent):
    assert host.cores(trainers=2, own=own, parent=parent, said=True) == own
    assert host.cores(trainers=2, own=own, parent=parent, said=False) == own // 2


def test_trainers_in_one_container_share_out_its_quota(host):
    assert host.cores(trainers=2, own=16, parent=16, quota=4) == 2
    assert host.cores(trainers=3, own=16, parent=16, quota=1.5) == 1
    assert host.cores(trainers=1, own=16, parent=16, quota=1.5) == 2
    # Also where the launcher, in the container too, has pinned them.
    assert host.cores(trainers=4, own=4, parent=16, quota=4) == 1
    assert host.cores(trainers=4, own=4, parent=4, quota=4, said=True) == 1


def test_a_trainer_with_a_container_of_its_own_has_its_cpuset_and_quota_alone(host):
    assert host.cores(trainers=2, own=4, parent=4, first=True) == 4
    assert host.cores(trainers=2, own=4, parent=4, first=True, quota=3) == 3
    # Without either there is the whole machine, as there is for the other containers.
    assert host.cores(trainers=2, own=16, parent=16, first=True) == 8
    assert host.cores(trainers=2, own=16, parent=16, first=True, quota=6) == 6


LOOK = "from cifar10.host import cpu; print(cpu._is_pinned(None), cpu._is_first_of_container())"


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs Linux and two cores",
)
@pytest.mark.parametrize(
    ("command", "seen"),
    [
        ('"{python}" -c "$LOOK"; true', "False False"),
        ('taskset -c {core} "{python}" -c "$LOOK"; true', "True False"),
        # A pid namespace of its own, as a container has it.
        ('taskset -c {core} unshare --pid --fork "{python}" -c "$LOOK"', "True True"),
    ],
    ids=["free", "pinned", "a container"],
)
def test_real_processes_know_whether_they_are_pinned_alone(command, seen):
    if "unshare" in command and (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode
    ):
        pytest.skip("needs the right to make a pid namespace")
    words = command.format(python=sys.executable, core=min(os.sched_getaffinity(0)))
    done = subprocess.run(
        ["sh", "-c", words],
        cwd=ROOT,
        env={**os.environ, "LOOK": LOOK},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == seen, done.stderr
