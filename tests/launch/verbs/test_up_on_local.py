"""Jobs of real processes on this machine: how they end, and that they leave nothing behind."""

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from launch.backends.local.backend import Local
from launch.cluster.host_list import on_this_machine
from launch.cluster.model import Limits
from launch.cluster.tasks import make_job
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.verbs import up
from testbeds.ports import free_ports_in_a_row
from tests.launch.launcher import (
    LOCAL,
    Launcher,
    agent_pids,
    assert_nothing_left,
    cluster_file,
    interrupt,
    pid_of,
    processes_naming,
)

pytestmark = pytest.mark.system

TWO = (*LOCAL, "--workers", "1")


def read_until(process: "subprocess.Popen[str]", words: str) -> None:
    """Reads a launcher's output up to the first line that contains `words`."""
    assert process.stdout is not None
    assert any(words in line for line in process.stdout), f"it ended without {words!r}"


def test_a_job_ends_with_the_master_and_each_task_has_its_place_in_the_cluster(
    launcher: Launcher,
) -> None:
    output = launcher.up(TWO, "--", "steps=3", "env=TF_CONFIG")
    assert "[master/0 localhost] epoch 0.1/1  step 3/3  loss 1.9  512 images/s" in output
    assert output.splitlines()[-1] == "master/0 is done"
    assert_nothing_left(launcher.run_id())
    configs = {}
    for task in ("master-0", "worker-0", "ps-0"):
        log = (launcher.state / launcher.run_id() / "logs" / f"{task}.log").read_text()
        configs[task] = json.loads(log.splitlines()[0].partition("=")[2])
    assert [config["task"] for config in configs.values()] == [
        {"type": "master", "index": 0},
        {"type": "worker", "index": 0},
        {"type": "ps", "index": 0},
    ]
    clusters = [config["cluster"] for config in configs.values()]
    assert clusters[0] == clusters[1] == clusters[2]
    addresses = [address for task_type in clusters[0].values() for address in task_type]
    assert len(set(addresses)) == 3


def test_the_first_failure_is_named_with_its_last_lines_and_is_the_exit_code(
    launcher: Launcher,
) -> None:
    output = launcher.up(TWO, "--", "steps=1000", "worker/0:die=3", exit_code=3)
    log = launcher.state / launcher.run_id() / "logs" / "worker-0.log"
    assert f"  | about to fail\n  log: {log}\n" in output
    assert output.splitlines()[-1] == "exit code 3: worker/0 on localhost failed: exit code 3"
    assert "about to fail" in log.read_text()
    assert_nothing_left(launcher.run_id())


def test_ctrl_c_stops_in_order_and_lets_the_master_save(launcher: Launcher) -> None:
    process = launcher.start_up(TWO, "--", "steps=1000")
    launcher.wait_for_log("master/0", "step 3/")
    output = interrupt(process)
    assert process.returncode == 130
    saved = [line for line in output.splitlines() if line.endswith("saved")]
    order = [line.split()[0] for line in saved]
    assert order == ["[master/0", "[worker/0", "[ps/0"]
    assert output.splitlines()[-1] == "exit code 130: stopped by SIGINT"
    assert_nothing_left(launcher.run_id())


def test_ctrl_c_twice_stops_at_once(launcher: Launcher) -> None:
    process = launcher.start_up(TWO, "--", "steps=1000", "deaf", "child")
    launcher.wait_for_log("master/0", "step 3/")
    process.send_signal(signal.SIGINT)
    read_until(process, "SIGINT: stopping all tasks")
    began = time.monotonic()
    interrupt(process)
    assert time.monotonic() - began < Limits().stop_secs / 2
    assert process.returncode == 130
    assert_nothing_left(launcher.run_id())


def test_a_killed_agent_leaves_nothing_and_is_named(launcher: Launcher) -> None:
    process = launcher.start_up(TWO, "--", "steps=1000", "child", "deaf")
    launcher.wait_for_log("worker/0", "step 3/")
    (agent,) = agent_pids(launcher.run_id())
    os.kill(agent, signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "failed: lost: the agent ended with exit code -9" in output
    assert_nothing_left(launcher.run_id(), timeout_secs=60)


def test_a_port_in_use_is_named_with_its_owner(launcher: Launcher, tmp_path: Path) -> None:
    port = free_ports_in_a_row(3)
    with socket.create_server(("", port)):
        text = cluster_file(tmp_path, launcher, "")[1]
        Path(text).write_text(Path(text).read_text().replace("ports: free", f"ports: {port}"))
        output = launcher.up(("--cluster", text), "--", "steps=1", exit_code=1)
    assert f"master/0 on localhost failed: port {port} is in use by pid {os.getpid()} (" in output
    assert_nothing_left(launcher.run_id())


def test_a_secret_shows_in_no_list_log_or_plan(launcher: Launcher, tmp_path: Path) -> None:
    secret = "hunter2-and-more"
    launcher.env["API_TOKEN"] = secret
    cluster = cluster_file(tmp_path, launcher, "pass_environment: [API_TOKEN]\n")
    process = launcher.start_up(cluster, "--", "steps=1000", "env=API_TOKEN")
    launcher.wait_for_log("worker/0", "step 3/")
    assert processes_naming(secret) == {}
    output = interrupt(process)
    assert secret not in output
    assert "API_TOKEN=***" in output
    for path in launcher.state.rglob("*"):
        assert path.is_dir() or secret not in path.read_text()


def test_a_task_that_is_started_again_keeps_the_token(launcher: Launcher) -> None:
    words = ("worker/0:die_once=1", "env=CIFAR10_JOB_TOKEN")
    output = launcher.up(TWO, "--restarts", "1", "--", "steps=60", *words)
    assert "worker/0 on localhost: exit code 1; restart 1 of 1 in 1 s" in output
    assert output.splitlines()[-1] == "master/0 is done"
    found = re.findall(r"CIFAR10_JOB_TOKEN=(\S+)", output)
    assert len(found) == 4
    assert len(set(found)) == 1


def test_lines_of_many_tasks_are_never_mixed(launcher: Launcher) -> None:
    output = launcher.up((*LOCAL, "--workers", "3"), "--", "steps=5", "flood=500")
    lines = [line for line in output.splitlines() if "] line " in line]
    assert len(lines) == 5 * 500
    assert {len(line.split()) for line in lines} == {5}
    assert {line.split()[4] for line in lines} == {"x" * 100}


def test_a_state_folder_that_cannot_be_made_is_an_error(launcher: Launcher) -> None:
    launcher.state = Path("/dev/null/state")
    output = launcher.up(LOCAL, "--", "steps=1", exit_code=1)
    assert "Not a directory; --state-dir names another place" in output


def test_cores_are_shared_out_among_the_trainers(launcher: Launcher) -> None:
    process = launcher.start_up((*LOCAL, "--workers", "1"), "--", "steps=1000")
    launcher.wait_for_log("worker/0", "step 2/")
    master = os.sched_getaffinity(pid_of(launcher.run_id(), "master/0"))
    worker = os.sched_getaffinity(pid_of(launcher.run_id(), "worker/0"))
    ps = os.sched_getaffinity(pid_of(launcher.run_id(), "ps/0"))
    interrupt(process)
    everything = os.sched_getaffinity(0)
    assert ps == everything
    assert master | worker <= everything
    assert len(everything) == 1 or not master & worker


def test_a_job_that_is_stopped_before_its_start_is_known_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = Outcome(130, "stopped before the start", cause=Cause.USER)
    monkeypatch.setattr(Local, "run", lambda *_: stopped)
    job = make_job(on_this_machine(1, 1), [])
    folder = RunFolder.create(tmp_path, job)
    with contextlib.closing(Display(io.StringIO(), live=False)) as display:
        assert up._run(Local(), job, folder, display) == stopped
    assert folder.end() == stopped
