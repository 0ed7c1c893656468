"""What the system says of the CPU."""

import os
import platform

import pytest

from cifar10 import cpu

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


def test_where_the_system_does_not_say_there_is_the_architecture(tmp_path):
    missing = str(tmp_path / "none")
    assert cpu.cpu_name(missing) in (platform.processor(), platform.machine())
    assert cpu.cpu_flags(missing) == set()


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
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "150000 100000\n"}, min(2, ALL_CORES)),
        ({"cpu.max": "9900000 100000\n"}, min(99, ALL_CORES)),
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
