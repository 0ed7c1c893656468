"""The end of a run: whoever owes its figures makes them, or another task does."""

import contextlib
import json
import pathlib
import signal
from typing import Any

import pytest

from cifar10.output import checkpoints
from testbeds.processes import ClusterOfProcesses, cluster
from tests.launch.launcher import Launcher, assert_nothing_left
from tests.system import slow_evaluation

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
PATIENT = "--cluster-timeout=150"


def slowly(
    folder: pathlib.Path, *arguments: object, slow: dict[str, str], **shape: Any
) -> contextlib.AbstractContextManager[ClusterOfProcesses]:
    """A cluster with variables for `slow_evaluation`."""
    return cluster(folder, *arguments, program=slow_evaluation.PROGRAM, variables=slow, **shape)


@pytest.fixture
def hold(tmp_path) -> pathlib.Path:
    """A file; while it exists, no evaluation of the eval split ends."""
    path = tmp_path / "hold"
    path.touch()
    return path


def assert_has_figures(folder: pathlib.Path, validated: int) -> None:
    found = json.loads((folder / "output" / "result.json").read_text())
    assert found["figures"]["global_step"] == checkpoints.latest_step(str(folder / "output")) >= 2
    assert len(found["history"]["validation"]) == validated


def test_a_chief_waits_for_its_evaluator_longer_than_the_timeout(data, tmp_path):
    slow = {"EVAL_BATCH_SECS": "0.3"}  # 12 s for 40 images
    arguments = (data, *SHORT, "--cluster-timeout=10")
    with slowly(tmp_path, *arguments, slow=slow, evaluator=True) as tasks:
        tasks.start()
        tasks.wait_for_output("master/0", "waiting for the evaluator")
        tasks.wait()
    assert "eval accuracy" in tasks.output("evaluator/0")
    assert "instead" not in tasks.output("master/0")
    assert tasks.output("master/0").splitlines()[-1].startswith("eval accuracy")
    assert_has_figures(tmp_path, validated=1)


def test_a_chief_whose_evaluator_fails_makes_the_figures(data, tmp_path, hold):
    slow = {"HOLD_EVAL": str(hold)}
    with slowly(tmp_path, data, *SHORT, slow=slow, evaluator=True) as tasks:
        others = ["ps/0", "worker/0", "evaluator/0"]
        tasks.start(*others, more=[PATIENT])
        tasks.wait_for_listening("ps/0", "worker/0")
        tasks.wait_for_output("evaluator/0", "evaluator of output")
        tasks.start("master/0", more=["--cluster-timeout=8"])
        tasks.wait_for_output("evaluator/0", "evaluating output")
        tasks.kill("evaluator/0", signal.SIGSTOP)
        hold.unlink()
        tasks.wait(but=["evaluator/0"])
        tasks.kill("evaluator/0", signal.SIGCONT)
        assert tasks.exit_code("evaluator/0") == 0
    assert "this process evaluates and exports instead" in tasks.output("master/0")
    assert_has_figures(tmp_path, validated=1)


def test_a_master_killed_while_it_makes_the_figures_needs_nobody_to_make_them(data, tmp_path, hold):
    with slowly(tmp_path, data, *SHORT, slow={"HOLD_EVAL": str(hold)}) as tasks:
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
        assert tasks.output("ps/0").count("ps/0 ends: training is over") == 2
        tasks.start("ps/0", more=["--cluster-timeout=2"])
        tasks.wait()
        last = "ps/0 ends: training is over according to output; master/0 does not answer\n"
        assert tasks.output("ps/0").endswith(f"\n{last}")
    assert "waiting for ps/0" not in tasks.output("master/0")
    assert_has_figures(tmp_path, validated=1)


def test_the_launcher_lets_an_evaluator_make_the_figures(data, tmp_path):
    # An evaluation takes 6 s, longer than the time that others get after the chief's end.
    launcher = Launcher(tmp_path, {"EVAL_BATCH_SECS": "0.15"})
    (launcher.workdir / "cifar10_main.py").unlink()
    (launcher.workdir / "cifar10_main.py").symlink_to(slow_evaluation.PROGRAM)
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "hosts: [{name: localhost, roles: {chief: 1, worker: 1, ps: 1, evaluator: 1}}]\n"
        "backend: local\n"
        "limits: {grace_secs: 1}\n"
    )
    words = (data, *SHORT[1:], f"--output-dir={tmp_path / 'output'}")
    try:
        printed = launcher.up(("--cluster", str(file)), "--", *words)
    finally:
        launcher.end()
    assert "did not end in time" not in printed
    assert "[evaluator/0 localhost] eval accuracy" in printed
    assert_has_figures(tmp_path, validated=1)
    assert_nothing_left(launcher.run_id())
