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
    wait_for,
)

TWO = (*LOCAL, "--workers", "1")


def read_until(process: "subprocess.Popen[str]", words: str) -> None:
    """Reads a launcher's output up to the first line that contains `words`."""
    assert process.stdout is not None
    assert any(words in line for line in process.stdout), f"it ended without {words!r}"


def test_a_job_ends_with_the_master(launcher: Launcher) -> None:
    output = launcher.up(TWO, "--", "steps=3")
    assert "[master/0 localhost] epoch 0.1/1  step 3/3  loss 1.9  512 images/s" in output
    assert output.splitlines()[-1] == "master/0 is done"
    assert_nothing_left(launcher.run_id())


def test_a_ps_that_stays_is_told_to_end(launcher: Launcher) -> None:
    began = time.monotonic()
    launcher.up(LOCAL, "--ps", "2", "--", "steps=1", "stays")
    assert time.monotonic() - began < Limits().stop_secs / 2  # No task had to be killed.
    assert_nothing_left(launcher.run_id())


def test_every_task_gets_the_same_cluster_and_its_own_place_in_it(launcher: Launcher) -> None:
    launcher.up(TWO, "--", "steps=1", "env=TF_CONFIG")
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


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["worker/0:die=3"], 3, "worker/0 on localhost failed: exit code 3"),
        (["worker/0:kill=9"], 137, "worker/0 on localhost failed: killed by SIGKILL"),
    ],
)
def test_the_first_failure_is_named_and_is_the_exit_code(
    launcher: Launcher, arguments: list[str], exit_code: int, words: str
) -> None:
    output = launcher.up(TWO, "--", "steps=1000", *arguments, exit_code=exit_code)
    assert output.splitlines()[-1] == f"exit code {exit_code}: {words}"
    assert_nothing_left(launcher.run_id())


def test_a_ps_that_ends_by_itself_is_a_failure(launcher: Launcher, tmp_path: Path) -> None:
    cluster = cluster_file(tmp_path, launcher, "limits: {grace_secs: 1}\n")
    output = launcher.up(cluster, "--", "steps=1000", "ps/0:die=0", exit_code=1)
    assert "ps/0 on localhost failed: ended by itself while the job was running" in output


def test_a_ps_that_left_is_named_before_the_task_that_it_failed(launcher: Launcher) -> None:
    arguments = ("steps=1000", "ps/0:die=0", "worker/0:die=1", "worker/0:at=5")
    output = launcher.up(TWO, "--", *arguments, exit_code=1)
    assert "exit code 1: ps/0 on localhost failed: ended by itself" in output


def test_a_failure_shows_the_last_lines_and_the_log(launcher: Launcher) -> None:
    output = launcher.up(TWO, "--", "steps=1000", "worker/0:die=3", exit_code=3)
    log = launcher.state / launcher.run_id() / "logs" / "worker-0.log"
    assert "  | about to fail\n" in output
    assert f"  log: {log}\n" in output
    assert "about to fail" in log.read_text()


def test_a_failure_lets_the_master_save(launcher: Launcher) -> None:
    arguments = ("--", "steps=1000", "together", "worker/0:die=3", "worker/0:at=5")
    output = launcher.up(TWO, *arguments, exit_code=3)
    assert "[master/0 localhost] saved" in output


def test_a_failed_task_is_started_again(launcher: Launcher) -> None:
    output = launcher.up(TWO, "--restarts", "1", "--", "steps=60", "worker/0:die_once=3")
    assert "worker/0 on localhost: exit code 3; restart 1 of 1 in 1 s" in output
    assert output.splitlines()[-1] == "master/0 is done"


def test_restarts_run_out(launcher: Launcher) -> None:
    arguments = ("--restarts", "1", "--", "steps=1000", "worker/0:die=3")
    output = launcher.up(TWO, *arguments, exit_code=3)
    assert output.splitlines()[-1].endswith("failed: exit code 3, after 1 restarts")


def test_a_mistake_of_the_users_is_not_started_again(launcher: Launcher) -> None:
    output = launcher.up(TWO, "--restarts", "5", "--", "steps=1000", "worker/0:die=2", exit_code=2)
    assert "restart 1" not in output


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


def test_a_child_of_a_task_is_not_left_behind(launcher: Launcher) -> None:
    launcher.up(TWO, "--", "steps=2", "child")
    assert_nothing_left(launcher.run_id())


def test_a_task_that_ignores_sigterm_is_killed(launcher: Launcher, tmp_path: Path) -> None:
    cluster = cluster_file(tmp_path, launcher, "limits: {stop_secs: 1}\n")
    arguments = ("steps=1000", "deaf", "worker/0:die=3", "worker/0:at=20")
    output = launcher.up(cluster, "--", *arguments, exit_code=3)
    assert "master/0 did not end in time: killed" in output
    assert_nothing_left(launcher.run_id())


def test_a_killed_launcher_leaves_nothing(launcher: Launcher, tmp_path: Path) -> None:
    cluster = cluster_file(tmp_path, launcher, "limits: {stop_secs: 4}\n")
    process = launcher.start_up(cluster, "--", "steps=1000", "worker/0:deaf", "child")
    for task in ("master/0", "worker/0"):
        launcher.wait_for_log(task, "step 3/")
    process.kill()
    process.communicate()
    assert_nothing_left(launcher.run_id(), timeout_secs=60)
    log = launcher.state / launcher.run_id() / "logs" / "master-0.log"
    assert "saved" in log.read_text()


def test_a_killed_agent_leaves_nothing_and_is_named(launcher: Launcher) -> None:
    process = launcher.start_up(TWO, "--", "steps=1000", "child", "deaf")
    launcher.wait_for_log("worker/0", "step 3/")
    (agent,) = agent_pids(launcher.run_id())
    os.kill(agent, signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "failed: lost: the agent ended with exit code -9" in output
    assert_nothing_left(launcher.run_id(), timeout_secs=60)


def test_a_stopped_launcher_loses_its_lease(launcher: Launcher, tmp_path: Path) -> None:
    cluster = cluster_file(tmp_path, launcher, "limits: {stop_secs: 1, lease_secs: 2}\n")
    process = launcher.start_up(cluster, "--", "steps=1000")
    launcher.wait_for_log("worker/0", "step 3/")
    process.send_signal(signal.SIGSTOP)
    assert_nothing_left(launcher.run_id(), timeout_secs=60)
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "lost: its agent stopped: no message from the launcher for 2 s" in output


def test_the_port_of_a_killed_job_is_free_again(launcher: Launcher, tmp_path: Path) -> None:
    port = free_ports_in_a_row(3)
    text = cluster_file(tmp_path, launcher, "limits: {stop_secs: 1}\n")[1]
    Path(text).write_text(Path(text).read_text().replace("ports: free", f"ports: {port}"))
    process = launcher.start_up(("--cluster", text), "--", "steps=1000")
    launcher.wait_for_log("worker/0", "step 3/")
    process.kill()
    process.communicate()
    assert_nothing_left(launcher.run_id(), timeout_secs=60)
    launcher.up(("--cluster", text), "--", "steps=2")


def test_a_port_in_use_is_named_with_its_owner(launcher: Launcher, tmp_path: Path) -> None:
    port = free_ports_in_a_row(3)
    with socket.create_server(("", port)):
        text = cluster_file(tmp_path, launcher, "")[1]
        Path(text).write_text(Path(text).read_text().replace("ports: free", f"ports: {port}"))
        output = launcher.up(("--cluster", text), "--", "steps=1", exit_code=1)
    assert f"master/0 on localhost failed: port {port} is in use by pid {os.getpid()} (" in output
    assert_nothing_left(launcher.run_id())


def test_no_step_in_time_ends_the_job(launcher: Launcher, tmp_path: Path) -> None:
    cluster = cluster_file(tmp_path, launcher, "limits: {start_secs: 1}\n")
    output = launcher.up(cluster, "--", "steps=1000", "mute", exit_code=124)
    assert "no training step within 1 s" in output


def test_silence_ends_the_job(launcher: Launcher, tmp_path: Path) -> None:
    cluster = cluster_file(tmp_path, launcher, "limits: {idle_secs: 4}\n")
    process = launcher.start_up(cluster, "--", "steps=1000", "deaf")
    launcher.wait_for_log("worker/0", "step 3/")
    for task in ("master/0", "worker/0"):
        os.kill(pid_of(launcher.run_id(), task), signal.SIGSTOP)
    read_until(process, "no line from any task for 4 s")
    process.send_signal(signal.SIGTERM)
    read_until(process, "SIGTERM: stopping all tasks")
    interrupt(process)
    assert process.returncode == 124
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


def tokens(output: str) -> list[str]:
    """Returns the job tokens that the tasks of a run have printed."""
    return re.findall(r"CIFAR10_JOB_TOKEN=(\S+)", output)


def test_all_tasks_of_a_run_get_one_token_and_each_run_another(launcher: Launcher) -> None:
    first = tokens(launcher.up(TWO, "--", "steps=2", "env=CIFAR10_JOB_TOKEN"))
    second = tokens(launcher.up(TWO, "--", "steps=2", "env=CIFAR10_JOB_TOKEN"))
    assert len(first) == len(second) == 3
    assert len(set(first)) == len(set(second)) == 1
    assert re.fullmatch("[0-9a-f]{32}", first[0])
    assert first[0] != second[0]


def test_a_task_that_is_started_again_keeps_the_token(launcher: Launcher) -> None:
    words = ("worker/0:die_once=1", "env=CIFAR10_JOB_TOKEN")
    found = tokens(launcher.up(TWO, "--restarts", "1", "--", "steps=60", *words))
    assert len(found) == 4
    assert len(set(found)) == 1


def test_a_token_of_the_users_own_is_kept(launcher: Launcher, tmp_path: Path) -> None:
    cluster = cluster_file(tmp_path, launcher, "environment: {CIFAR10_JOB_TOKEN: mine}\n")
    output = launcher.up(cluster, "--", "steps=2", "env=CIFAR10_JOB_TOKEN")
    assert set(tokens(output)) == {"mine"}


def test_a_variable_that_is_not_set_is_an_error(launcher: Launcher, tmp_path: Path) -> None:
    cluster = cluster_file(tmp_path, launcher, "pass_environment: [NOBODY_SETS_THIS]\n")
    output = launcher.up(cluster, "--", exit_code=2)
    assert "error: pass_environment: NOBODY_SETS_THIS not set here" in output


def test_lines_of_many_tasks_are_never_mixed(launcher: Launcher) -> None:
    output = launcher.up((*LOCAL, "--workers", "3"), "--", "steps=5", "flood=500")
    lines = [line for line in output.splitlines() if "] line " in line]
    assert len(lines) == 5 * 500
    assert {len(line.split()) for line in lines} == {5}
    assert {line.split()[4] for line in lines} == {"x" * 100}


def test_a_reader_that_stands_still_does_not_stop_training(launcher: Launcher) -> None:
    process = launcher.start_up(TWO, "--", "steps=20", "flood=20000")
    try:
        launcher.wait_for_log("master/0", "step 20/20")
        wait_for(lambda: process.poll() is not None, "end of the launcher")
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    assert_nothing_left(launcher.run_id())


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


def test_a_folder_without_the_code_is_an_error(launcher: Launcher, tmp_path: Path) -> None:
    launcher.workdir = tmp_path
    output = launcher.up(LOCAL, "--", exit_code=1)
    assert f"{tmp_path} has no cifar10_main.py; give the code's folder with --workdir" in output


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
