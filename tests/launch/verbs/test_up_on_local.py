"""Jobs of real processes on this machine: how they end and leave nothing; ports that are taken."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.launch.launcher import TWO, Launcher, cluster_file

pytestmark = pytest.mark.system


def test_a_killed_agent_leaves_nothing_and_is_named(launcher: Launcher) -> None:
    process = launcher.start_up(TWO, "--", "steps=1000", "child", "deaf")
    launcher.wait_until_trains()
    (agent,) = launcher.agent_pids()
    os.kill(agent, signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "failed: lost: the agent ended: killed by SIGKILL" in output
    launcher.assert_nothing_left(timeout_secs=60)


def test_a_secret_shows_in_no_list_log_or_plan(launcher: Launcher, tmp_path: Path) -> None:
    file = cluster_file(tmp_path, launcher, "pass_environment: [API_TOKEN]\n")
    launcher.check_secret(file, "[worker/0 localhost]")


def test_a_task_that_is_started_again_keeps_the_token(launcher: Launcher) -> None:
    words = ("worker/0:die_once=1", "env=CIFAR10_JOB_TOKEN")
    output = launcher.up(TWO, "--restarts", "1", "--", "steps=60", *words)
    assert "worker/0 on localhost: exit code 1; restart 1 of 1 in 1 s" in output
    assert output.splitlines()[-1] == "master/0 is done"
    found = re.findall(r"CIFAR10_JOB_TOKEN=(\S+)", output)
    assert len(found) == 4
    assert len(set(found)) == 1
