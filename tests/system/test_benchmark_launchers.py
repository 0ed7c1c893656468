"""What launching costs, on nodes that the benchmark starts itself."""

import json
from pathlib import Path

import pytest

from benchmarks import cli
from testbeds import nodes, slurm
from tests.cifar10 import program

pytestmark = pytest.mark.system


def test_the_same_job_is_timed_here_over_ssh_and_in_slurm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = nodes.why_not() or slurm.why_not()
    if reason:
        pytest.skip(reason)
    output = tmp_path / "output"
    words = ["local", "ssh", "slurm", "--rounds", "1", "--wipe", str(output)]
    training = ["--model=mlp", "--train-batch-size=16", "--train-steps=20"]
    data = program.make_records(tmp_path / "data", 1000)
    training += [f"--data-dir={data}", f"--output-dir={output}"]
    capsys.readouterr()
    assert cli.main(["launchers", *words, "--", *training]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    assert [line["way"] for line in found] == ["local", "ssh", "slurm"]
    assert all(line["seconds"] > line["before"] > 0 for line in found)
    assert (output / "result.json").exists()
