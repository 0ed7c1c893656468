"""Jobs with `ports: free`: launchers beside each other, and ports that another program takes."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.launcher import LOCAL, Launcher, assert_nothing_left

pytestmark = pytest.mark.system

TWO = (*LOCAL, "--workers", "1")

# Makes the first attempts of a worker fail: another process, which is no part of the run, listens
# at its port before it does. Meanwhile the master makes no step, or one has to be seen first.
_STOLEN = """\
#!{python}
import json, os, pathlib, subprocess, sys, time
config = json.loads(os.environ["TF_CONFIG"])
folder = pathlib.Path({folder!r})
pids = list(folder.glob("*.pid"))
if config["task"]["type"] == "worker" and len(pids) < {times}:
    while "{wait_for}" and "{wait_for}" not in (folder / "master.out").read_text():
        time.sleep(0.02)
    port = int(config["cluster"]["worker"][0].rpartition(":")[2])
    code = (
        f"import socket, time; server = socket.create_server(('', {{port}})); print(flush=True);"
        "time.sleep(300)"
    )
    env = {{name: value for name, value in os.environ.items() if not name.startswith("LAUNCH_")}}
    thief = subprocess.Popen(
        [sys.executable, "-c", code], env=env, start_new_session=True, stdout=subprocess.PIPE
    )
    (folder / f"{{thief.pid}}.pid").touch()
    thief.stdout.readline()
elif config["task"]["type"] == "master" and "{wait_for}":
    tee = subprocess.Popen(["tee", str(folder / "master.out")], stdin=subprocess.PIPE)
    os.dup2(tee.stdin.fileno(), 1)
elif config["task"]["type"] == "master":
    attempts = len(list(folder.glob("*.attempt")))
    (folder / f"{{attempts}}.attempt").touch()
    if attempts < {times}:
        os.execvp("sleep", ["sleep", "300"])
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture
def thieves(tmp_path: Path) -> Iterator[Path]:
    """A folder with a file PID.pid for each process that has taken a port."""
    folder = tmp_path / "thieves"
    folder.mkdir()
    (folder / "master.out").touch()
    yield folder
    for path in folder.glob("*.pid"):
        os.kill(int(path.stem), signal.SIGKILL)


def with_stolen_ports(folder: Path, times: int, wait_for: str = "") -> tuple[str, ...]:
    python = folder / "python"
    facts = {"python": sys.executable, "folder": str(folder), "times": times, "wait_for": wait_for}
    python.write_text(_STOLEN.format(**facts))
    python.chmod(0o755)
    return (*TWO, "--python", str(python))


def test_a_port_that_is_taken_before_the_first_step_starts_the_job_with_others(
    launcher: Launcher, thieves: Path
) -> None:
    output = launcher.up(with_stolen_ports(thieves, 1), "--", "steps=40", "env=TF_CONFIG")
    again = "another program took the port of worker/0: starting the job again with other ports"
    assert output.count(again) == 1
    assert f"{again} (1 of 3)\n" in output
    assert output.splitlines()[-1] == "master/0 is done"
    events = next(launcher.state.glob("*/events.jsonl")).read_text()
    assert events.count('"what": "run ends"') == 1  # the first attempt's end is not the run's
    log = next(launcher.state.glob("*/logs/ps-0.log")).read_text()
    ports = re.findall(r'"worker": \["127.0.0.1:(\d+)"\]', log)
    first, second = ports[0], ports[-1]
    assert first != second
    assert_nothing_left(launcher.run_id())


def test_a_job_whose_ports_are_always_taken_fails_after_three_more_attempts(
    launcher: Launcher, thieves: Path
) -> None:
    cluster = with_stolen_ports(thieves, 99)
    output = launcher.up(cluster, "--", "steps=100000", exit_code=1)
    assert "starting the job again with other ports (3 of 3)\n" in output
    assert output.splitlines()[-1] == "exit code 1: worker/0 on localhost failed: exit code 1"
    assert len(list(thieves.glob("*.pid"))) == 4
    assert_nothing_left(launcher.run_id())


def test_a_job_that_trains_already_does_not_start_again(launcher: Launcher, thieves: Path) -> None:
    cluster = with_stolen_ports(thieves, 1, wait_for="step 3/")
    output = launcher.up(cluster, "--", "steps=100000", exit_code=1)
    assert "starting the job again" not in output
    assert output.splitlines()[-1] == "exit code 1: worker/0 on localhost failed: exit code 1"
