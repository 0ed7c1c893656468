"""What the system says of the CPU."""

import os
from typing import Any, Optional

import pytest

from cifar10.host import cpu

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


@pytest.mark.parametrize(
    ("trainers", "affinity", "quota", "given", "cores"),
    [
        # Trainers share a machine of 16 cores, or what the whole job may use of it.
        (4, 16, None, {}, 4),
        (32, 16, None, {}, 1),
        # Whoever started a trainer may say that its affinity is its own.
        (4, 4, None, {"own": True}, 4),
        (2, 4, None, {"own": False}, 2),
        # They share the quota of one container, also if they are pinned in it.
        (2, 16, 4, {}, 2),
        (3, 16, 1.5, {}, 1),
        (4, 4, 4, {"own": True}, 1),
        # A container of its own has its cpuset and its quota alone, or else shares the machine.
        (2, 4, None, {"first": True}, 4),
        (2, 4, 3, {"first": True}, 3),
        (2, 16, None, {"first": True}, 8),
        (2, 16, 6, {"first": True}, 6),
    ],
)
def test_trainers_of_a_host_share_its_cores(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    trainers: int,
    affinity: int,
    quota: Optional[float],
    given: dict[str, bool],
    cores: int,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "getpid", lambda: 1 if given.get("first") else 8)
    granted = "max" if quota is None else str(int(quota * 100_000))
    (tmp_path / "cpu.max").write_text(f"{granted} 100000\n")
    assert cpu.count_cores(str(tmp_path), trainers, given.get("own")) == cores
