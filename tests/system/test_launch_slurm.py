"""Jobs of a real Slurm: how they end, and that they leave nothing behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbeds import slurm as testbed
from testbeds.slurm import Slurm
from tests.cifar10 import program
from tests.launch.launcher import ROOT, Launcher, interrupt, wait_for

pytestmark = pytest.mark.system

LIMITS = "limits: {stop_secs: 20, grace_secs: 2}\n"
# For tests of what happens at the end of a limit.
SHORT = "limits: {stop_secs: 2, lease_secs: 5}\n"
END_SECS = 90.0  # for what ends within some seconds on an idle machine


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    reason = testbed.why_not()
    if reason:
        pytest.skip(reason)
    with Slurm() as running:
        yield running


@pytest.fixture
def launcher(slurm: Slurm, tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path, slurm.env)
    yield launcher
    launcher.end()
    slurm.end_jobs()


def cluster(
    launcher: Launcher, text: str = "", tasks: str = "worker: 1, ps: 1", limits: str = LIMITS
) -> tuple[str, ...]:
    """Writes a cluster file with a master and `tasks` on two nodes; returns its flags."""
    path = launcher.workdir.parent / "lab.yaml"
    path.write_text(
        f"backend: slurm\ntasks: {{master: 1, {tasks}}}\nports: free\n"
        f"workdir: {launcher.workdir}\npython: {sys.executable}\n{limits}{text}"
    )
    return ("--cluster", str(path))


def start(
    launcher: Launcher, *arguments: str, text: str = "", limits: str = LIMITS
) -> "subprocess.Popen[str]":
    """Starts an endless job and waits until its master and its worker train."""
    file = cluster(launcher, text, limits=limits)
    process = launcher.start_up(file, "--", "steps=100000", *arguments)
    launcher.wait_until_trains()
    return process


def assert_idle(slurm: Slurm, launcher: Launcher, timeout_secs: float = 0) -> None:
    """Asserts that Slurm has no job, and that no process of the run or of Slurm's steps is left."""
    launcher.assert_nothing_left(timeout_secs)
    assert slurm.jobs() == []
    wait_for(lambda: not slurm.processes(), "end of Slurm's own processes")


def job_of(slurm: Slurm) -> str:
    """Returns the id of the only job."""
    (job,) = slurm.jobs()
    return job.split()[0]


def test_a_job_runs_to_its_end(launcher: Launcher, slurm: Slurm) -> None:
    output = launcher.up(cluster(launcher), "--", "steps=5", "together")
    lines = output.splitlines()
    assert lines[1] == f"  {launcher.state / launcher.run_id()}"
    assert "Slurm job 1: submitted; " in lines[2]
    assert "[master/0 m1] epoch 0.1/1  step 5/5  loss 1.9  512 images/s" in lines
    assert "[worker/0 m2] epoch 0.1/1  step 1/5  loss 1.9  512 images/s" in lines
    assert lines[-1] == "master/0 is done"
    assert_idle(slurm, launcher)
    assert "ExitCode=0:0" in slurm.run("scontrol", "show", "job", "1")


def test_tf_config_names_the_nodes_of_the_allocation(launcher: Launcher, slurm: Slurm) -> None:
    file = cluster(launcher, "slurm: {options: [--nodelist=m2]}\n", "worker: 2, ps: 2")
    launcher.up(file, "--", "steps=1", "env=TF_CONFIG")
    config = json.loads(launcher.log("ps/1").splitlines()[0].partition("=")[2])
    hosts = {kind: [a.split(":")[0] for a in where] for kind, where in config["cluster"].items()}
    assert hosts == {
        "master": ["127.0.0.1"],
        "worker": ["127.0.0.2", "127.0.0.3"],
        "ps": ["127.0.0.1", "127.0.0.2"],
    }
    assert config["task"] == {"type": "ps", "index": 1}


def test_a_job_outlives_its_launcher_and_can_be_stopped(launcher: Launcher, slurm: Slurm) -> None:
    process = start(launcher, "child")
    launcher.kill(process)
    run_id, job = launcher.run_id(), job_of(slurm)
    before = launcher.pid_of("master/0")
    words = f"continues without its launcher: Slurm job {job}: RUNNING m[1-2]"
    assert f"run {run_id}: {words}" in launcher.verb("status")
    assert "step 3/" in launcher.verb("logs", "worker/0")
    assert f"continues without its launcher: Slurm job {job}: RUNNING" in launcher.verb("clean")
    assert launcher.pid_of("master/0") == before
    assert launcher.verb("stop") == f"run {run_id}: stopped by SIGTERM\n"
    assert "saved" in launcher.verb("logs", "master/0")
    assert "exit code 143: stopped by SIGTERM" in launcher.verb("status", exit_code=143)
    assert_idle(slurm, launcher)


def test_a_detached_job_is_attached_to_with_and_without_its_launcher(
    launcher: Launcher, slurm: Slurm
) -> None:
    output = launcher.up(cluster(launcher), "--detach", "--", "steps=100000")
    assert f"Slurm job {job_of(slurm)}: submitted; " in output
    assert "the run goes on without this terminal; to see it again:\n" in output
    launcher.wait_until_trains()
    state_dir = ("--state-dir", str(launcher.state))
    attached = launcher.start("attach", *state_dir)
    os.kill(launcher.pid(), signal.SIGKILL)
    again = launcher.start("attach", *state_dir)
    for process in (attached, again):
        assert process.stdout is not None
        assert any("[master/0 m1] epoch 0.1/1  step " in line for line in process.stdout)
    launcher.verb("stop")
    for process in (attached, again):
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 143
        assert output.splitlines()[-1] == "exit code 143: stopped by SIGTERM"
    assert_idle(slurm, launcher)


def test_a_job_that_is_cancelled_in_slurm_saves_and_says_it(
    launcher: Launcher, slurm: Slurm
) -> None:
    process = start(launcher, "child", "worker/0:deaf", limits=SHORT)
    slurm.run("scancel", job_of(slurm))
    output, _ = process.communicate(timeout=END_SECS)
    assert process.returncode != 0
    assert "[master/0 m1] saved" in output
    assert "(Slurm: cancelled in Slurm)" in output.splitlines()[-1]
    assert_idle(slurm, launcher)


def test_a_job_saves_before_its_time_limit(launcher: Launcher, slurm: Slurm) -> None:
    """Sends the signal that Slurm sends before a time limit, since the limit is minutes away."""
    process = start(launcher, text="slurm: {time: 10}\n")
    found = slurm.run("scontrol", "show", "job", job_of(slurm))
    assert "TimeLimit=00:10:00" in found
    slurm.run("scancel", "--batch", "--signal=USR1", job_of(slurm))
    output, _ = process.communicate(timeout=END_SECS)
    assert process.returncode == 124
    assert "exit code 124: stopped in time to save before Slurm's time limit" in output
    assert "[master/0 m1] saved" in output
    assert_idle(slurm, launcher)


def test_a_preempted_job_goes_on_later_if_it_may(launcher: Launcher, slurm: Slurm) -> None:
    process = start(launcher, text="slurm: {partition: spare, requeue: true}\n")
    run_id, job = launcher.run_id(), job_of(slurm)
    before = launcher.pid_of("master/0")
    words = ("--exclusive", "--nodes=3", "--output=/dev/null", "--wrap=sleep 60")
    other = slurm.run("sbatch", "--parsable", *words)
    wait_for(lambda: f"{job} cifar10-{run_id} PENDING" in slurm.jobs(), "a job in the queue")
    slurm.run("scancel", other)
    time.sleep(2)  # nodes refuse a job within the second of its end

    def goes_on() -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):
            slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # else in two minutes
        return f"{job} cifar10-{run_id} RUNNING" in slurm.jobs()

    wait_for(goes_on, "job that goes on")
    assert launcher.pid_of("master/0") != before
    output = interrupt(process)
    assert process.returncode == 130
    assert "requeued; training will resume from the last checkpoint" in output
    assert output.index("[master/0 m1] saved") < output.index("requeued; training will resume")


def test_the_failure_of_a_node_is_named(launcher: Launcher, slurm: Slurm) -> None:
    process = start(launcher, "child", limits=SHORT)
    slurm.kill_node("m2")
    try:
        output, _ = process.communicate(timeout=END_SECS)
    finally:
        slurm.start_node("m2")
    assert process.returncode != 0
    assert "on m2 failed: no message from its agent for 5 s" in output
    launcher.assert_nothing_left()
    slurm.end_jobs()


def test_a_killed_supervisor_leaves_nothing(launcher: Launcher, slurm: Slurm) -> None:
    process = start(launcher, "child", "deaf", limits=SHORT)
    (supervisor,) = (
        p for p, words in slurm.processes().items() if "launch.backends.slurm.job" in words
    )
    os.kill(supervisor, signal.SIGKILL)
    output, _ = process.communicate(timeout=END_SECS)
    assert process.returncode == 137
    assert "exit code 137: Slurm job " in output.splitlines()[-1]
    assert_idle(slurm, launcher)


def test_check_says_when_and_where_a_job_would_start(launcher: Launcher, slurm: Slurm) -> None:
    output = launcher.verb_on(cluster(launcher), "check")
    assert "using 4 processors on nodes m[1-2] in partition main" in output
    assert "Slurm chooses the nodes later" in output


def test_the_planned_script_can_be_submitted_by_hand(
    launcher: Launcher, slurm: Slurm, tmp_path: Path
) -> None:
    file = cluster(launcher, "environment: {COLOUR: green}\n")
    text = launcher.verb_on(file, "plan", "--shell", "--", "steps=3", "env=COLOUR", "print=it's")
    assert "green" not in text
    (tmp_path / "job.sbatch").write_text(text)
    os.environ["COLOUR"] = "green"
    try:
        words = ("--wait", f"--output={tmp_path}/job.out", f"{tmp_path}/job.sbatch")
        slurm.run("env", f"XDG_STATE_HOME={tmp_path / 'home'}", "sbatch", *words)
    finally:
        del os.environ["COLOUR"]
    lines = (tmp_path / "job.out").read_text().splitlines()
    assert "[worker/0 m2] COLOUR=green" in lines
    assert "[worker/0 m2] it's" in lines
    assert lines[-1] == "master/0 is done"
    wait_for(lambda: not slurm.processes(), "end of Slurm's own processes")


def test_a_secret_shows_nowhere(launcher: Launcher, slurm: Slurm) -> None:
    def look(secret: str) -> list[int]:
        assert secret not in slurm.run("scontrol", "--details", "show", "job")
        assert secret not in slurm.run("scontrol", "write", "batch_script", job_of(slurm), "-")
        return []

    file = cluster(launcher, "pass_environment: [API_TOKEN]\n")
    launcher.check_secret(file, "[worker/0 m2]", look=look)


def test_real_training_runs_to_its_end(launcher: Launcher, slurm: Slurm, tmp_path: Path) -> None:
    data = program.make_records(tmp_path / "data", 1000)
    words = ["--num-layers=8", "--train-steps=30", "--train-batch-size=32"]
    folders = [f"--data-dir={data}", f"--output-dir={tmp_path / 'output'}"]
    path = Path(cluster(launcher)[1])
    text = path.read_text().replace(str(launcher.workdir), str(ROOT))
    path.write_text(text.replace(LIMITS, ""))
    output = launcher.up(("--cluster", str(path)), "--", *words, *folders)
    assert (tmp_path / "output" / "result.json").exists()
    assert "[worker/0 m2] " in output
    assert output.splitlines()[-1] == "master/0 is done"
    assert_idle(slurm, launcher)


def test_ps_have_nodes_of_their_own_and_an_edit_while_pending_changes_nothing(
    launcher: Launcher, slurm: Slurm
) -> None:
    text = "slurm: {ps: {partition: spare}, options: [--begin=now+5]}\n"
    process = launcher.start_up(cluster(launcher, text), "--", "steps=10", "print=as submitted")
    wait_for(slurm.jobs, "a job")
    (launcher.workdir / "cifar10_main.py").write_text("raise SystemExit('edited')\n")
    output, _ = process.communicate(timeout=END_SECS)
    assert process.returncode == 0, output
    for task in ("master/0 m1", "worker/0 m2", "ps/0 m3"):
        assert f"[{task}] as submitted" in output
