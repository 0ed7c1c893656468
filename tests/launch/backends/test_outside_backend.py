"""A backend outside the tree is one file and one line: LSF's commands are imitated by scripts."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launch.backends.registry import backend_named
from launch.errors import LaunchError
from launch.record.run_folder import all_runs
from tests.launch.launcher import ROOT, assert_nothing_left, make_workdir, read_until

SCRIPTS = {
    "bsub": """echo $2 >name; out=$4; shift 4
(setsid sh -c 'echo $$ >pid; exec "$@"' - "$@" >$out 2>&1; echo $? >code) >out 2>&1 &
echo 'Job <7> is submitted to queue <normal>.'""",
    "bjobs": """[ "$4" != -J ] || { [ "$5" = $(cat name) ] && echo 7; exit; }
[ -e code ] || { echo RUN -; exit; }
[ $(cat code) = 0 ] && echo DONE - || echo EXIT $(cat code)""",
    "bkill": '[ "$1" = -s ] && kill -TERM $(cat pid) || kill -KILL -$(cat pid)',
}


class Lab:
    """LSF, and the launcher with the backend for it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        self.env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        for name, text in SCRIPTS.items():
            (folder / name).write_text(f"#!/bin/sh\ncd {folder}\n{text}\n")
            (folder / name).chmod(0o755)
        work = make_workdir(folder / "work")
        (folder / "lab.yaml").write_text(
            f"backend: lsf\ntasks: {{master: 1, ps: 1}}\nnodes: 1\nlsf: {{queue: gpu}}\n"
            f"workdir: {work}\npython: {sys.executable}\nagent_python: {sys.executable}\n"
        )

    def start(self, verb: str, *words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "tests.launch.backends.lsf", verb, *words]
        out = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=ROOT, env=self.env, stdout=out, stderr=subprocess.STDOUT, text=True
        )

    def up(self, *words: str) -> "subprocess.Popen[str]":
        file = str(self.folder / "lab.yaml")
        return self.start("up", "--cluster", file, "--state-dir", str(self.state), "--", *words)

    def verb(self, verb: str) -> str:
        return self.start(verb, "--state-dir", str(self.state)).communicate(timeout=60)[0]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_an_unknown_backend_is_refused() -> None:
    rule = "a backend must be one of local, ssh, docker, slurm, kubernetes, got 'cloud'"
    with pytest.raises(LaunchError, match=rule):
        backend_named("cloud")


@pytest.mark.slow
def test_a_job_runs_on_such_a_backend_to_its_end(lab: Lab) -> None:
    process = lab.up("steps=5", "print=it's")
    lines = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 0
    assert {"LSF job 7: RUN", "[ps/0 here] it's", "master/0 is done"} <= set(lines)
    assert "[master/0 here] epoch 0.1/1  step 5/5  loss 1.9  512 images/s" in lines
    (run,) = all_runs(lab.state)
    assert "#BSUB -q gpu\n" in (run.path / "job.sh").read_text()


@pytest.mark.slow
def test_a_job_that_outlives_its_launcher_can_be_asked_for_and_be_stopped(lab: Lab) -> None:
    process = lab.up("steps=100000")
    read_until(process, "step 3/")
    (run,) = all_runs(lab.state)
    os.kill(run.launcher_pid() or 0, signal.SIGKILL)
    process.communicate()
    words = "continues without its launcher: LSF job 7: RUN"
    assert f"run {run.run_id}: {words}; to end it: stop --run {run.run_id}\n" in lab.verb("status")
    assert lab.verb("stop") == f"run {run.run_id}: stopped by SIGTERM\n"
    assert "saved" in lab.verb("logs")
    assert_nothing_left(run.run_id)
