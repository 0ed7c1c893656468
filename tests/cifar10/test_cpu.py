"""What the system says of the CPU."""

import platform

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
