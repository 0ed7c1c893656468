"""The end of a run: the chief makes the figures, whatever the other tasks do."""

import json
import pathlib
import signal

import pytest

from cifar10.output import checkpoints
from testbeds.processes import cluster
from tests.system import slow_program

pytestmark = pytest.mark.system

SHORT = (
    "--output-dir=output",
    "--model=mlp",
    "--learning-rate=0.001",
    "--train-batch-size=20",
    "--eval-batch-size=1",
    "--train-steps=2",
    "--checkpoint-steps=2",
)


def assert_has_figures(folder: pathlib.Path, validated: int) -> None:
    found = json.loads((folder / "output" / "result.json").read_text())
    step = checkpoints.latest_step(str(folder / "output"))
    assert found["figures"]["global_step"] == step >= 2
    assert len(found["history"]["validation"]) == validated


def test_a_chief_whose_evaluator_hangs_makes_the_figures(data, tmp_path):
    slow = {"program": slow_program.PROGRAM, "variables": {"VALIDATION_BATCH_SECS": "0.05"}}
    with cluster(tmp_path, data, *SHORT, **slow, evaluator=True) as tasks:
        tasks.start("ps/0", "worker/0", "evaluator/0")
        tasks.wait_for_listening("ps/0", "worker/0")
        tasks.wait_for_output("evaluator/0", "evaluator of output")
        tasks.kill("evaluator/0", signal.SIGSTOP)
        tasks.start("master/0")
        tasks.wait(but=["evaluator/0"])
        tasks.kill("evaluator/0", signal.SIGCONT)
        assert tasks.exit_code("evaluator/0") == 0
    assert_has_figures(tmp_path, validated=1)


def test_a_master_killed_while_it_makes_the_figures_needs_nobody_to_make_them(data, tmp_path):
    hold = tmp_path / "hold"  # While it exists, no evaluation of the eval split ends.
    hold.touch()
    slow = {"program": slow_program.PROGRAM, "variables": {"HOLD_EVAL": str(hold)}}
    with cluster(tmp_path, data, *SHORT, **slow) as tasks:
        tasks.start()
        tasks.wait_for_output("master/0", "evaluating output")
        tasks.kill("master/0")
        tasks.wait(but=["master/0"])  # The others have rightly ended.
        tasks.start("master/0")
        tasks.wait_for_output("master/0", "evaluating output", times=2)
        # A task that comes after the end is told so, while the master evaluates.
        tasks.start("ps/0", "worker/0")
        tasks.wait(but=["master/0"])
        assert tasks.processes["master/0"].poll() is None
        hold.unlink()
        tasks.wait()
        tasks.start("ps/0", more=["--cluster-timeout=2"])  # It sees the output folder.
        tasks.wait()
        assert tasks.output("ps/0").count("ps/0 ends: training is over") == 3
    assert "waiting for ps/0" not in tasks.output("master/0")
    assert_has_figures(tmp_path, validated=1)
