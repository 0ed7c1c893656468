import re
import subprocess
import sys
from pathlib import Path

from cifar10.cpu import cpu_flags

RATIO = r"[0-9.]+ \| [0-9.]+ \| [0-9.]+ \([0-9.]+ to [0-9.]+\) \|"


def test_both_ways_are_timed_in_turns(compiled_kernels: None, root: Path) -> None:
    words = ["kernels", "--rounds", "2", "--", "--num-layers=8", "--train-batch-size=16"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *words],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    ops, steps = done.stdout.split("\n\n")
    found = [
        re.fullmatch(rf"(\| \S+, \d+ \| .... \| [^|]* )\| {RATIO}", row)
        for row in ops.splitlines()[2:]
    ]
    assert None not in found
    expected = [
        f"| {images} | {precision} | {kind} "
        for precision in ("fp32", "bf16")[: 1 + ("avx512_bf16" in cpu_flags())]
        for images in ("32x32, 16", "16x16, 32", "8x8, 64")
        for kind in ("forwards", "gradient of inputs", "gradient of filters")
    ]
    assert [match[1] for match in found if match] == expected
    (step,) = steps.splitlines()[2:]
    assert re.fullmatch(rf"\| ResNet-8 v1, 16 images, fp32 \| {RATIO}", step)
