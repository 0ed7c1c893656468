import re
import subprocess
import sys
from pathlib import Path

from benchmarks.one_machine.kernels import _figures
from cifar10.host.cpu import cpu_flags

RATIO = r"[0-9.]+ \| [0-9.]+ \| [0-9.]+ \([0-9.]+ to [0-9.]+\) \|"


def rows(root: Path, *words: str) -> list[str]:
    """Runs the benchmark in a process of its own, for its threads; returns the rows of its table.

    Asserts that a line above the table describes the machine.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "kernels", "--rounds", "1", *words],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    machine, _, _, _, *found = done.stdout.splitlines()
    assert re.fullmatch(r"\d+ cores? of .+; Python 3\.\S+, TensorFlow 2\.15\.1; n = 1", machine)
    return found


def test_single_convolutions_are_timed_in_turns(compiled_kernels: None, root: Path) -> None:
    found = [re.fullmatch(rf"\| (.+) \| {RATIO}", row) for row in rows(root)]
    assert None not in found
    assert [match[1] for match in found if match] == [
        f"{images} | {precision} | {kind}"
        for precision in ("fp32", "bf16", "bf16, pairs")[: 3 if "avx512_bf16" in cpu_flags() else 1]
        for images in (
            "32x32 | 16 to 16",
            "16x16 | 32 to 32",
            "8x8 | 64 to 64",
            "31x31 | 24 to 64",
            "15x15 | 64 to 64",
            "15x15 | 64 to 256",
            "7x7 | 256 to 256",
            "3x3 | 256 to 256",
        )
        for kind in ("forwards", "gradient of inputs", "gradient of filters")
        if (images, kind) != ("31x31 | 24 to 64", "gradient of inputs")
    ]


def test_a_step_is_timed_in_turns(compiled_kernels: None, root: Path) -> None:
    (row,) = rows(root, "--", "--num-layers=8", "--train-batch-size=16")
    assert re.fullmatch(rf"\| ResNet-8 v1, 16 images, fp32 \| {RATIO}", row)


def test_quartiles_lie_within_the_ratios_of_the_rounds() -> None:
    assert _figures([[2.0, 1.0], [1.0, 1.0]], 1e3) == "1500.0 | 1000.0 | 1.50 (1.25 to 1.75)"
    assert _figures([[3.0], [2.0]], 1.0) == "3.0 | 2.0 | 1.50 (1.50 to 1.50)"
