import re

import pytest

from benchmarks import cli, kernels
from cifar10.cpu import cpu_flags
from cifar10.kernels import build, library


@pytest.mark.skipif(
    library.why_impossible(cpu_flags()) is not None, reason="convolutions are for x86-64 with AVX2"
)
def test_both_ways_are_timed_in_turns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.main([]) == 0
    monkeypatch.setattr(kernels, "_STAGES", ((4, 16),))
    monkeypatch.setattr(kernels, "_TURN_SECS", 0.01)
    monkeypatch.setattr(kernels, "cpu_flags", set)
    words = ["--num-layers=8", "--train-batch-size=16"]
    assert cli.main(["kernels", "--rounds", "2", "--", *words]) == 0
    ops, steps = capsys.readouterr().out.split("\n\n")
    ratio = r"[0-9.]+ \| [0-9.]+ \| [0-9.]+ \([0-9.]+ to [0-9.]+\) \|"
    kinds = ("forwards", "gradient of inputs", "gradient of filters")
    for line, kind in zip(ops.splitlines()[2:], kinds):
        assert re.fullmatch(rf"\| 4x4, 16 \| fp32 \| {kind} \| {ratio}", line)
    assert len(ops.splitlines()) == 2 + 3
    (step,) = steps.splitlines()[2:]
    assert re.fullmatch(rf"\| ResNet-8 v1, 16 images, fp32 \| {ratio}", step)
