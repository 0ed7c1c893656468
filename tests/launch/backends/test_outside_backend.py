"""A backend outside the tree is one file and one line; a script imitates LSF's blaunch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.backends.registry import BACKENDS
from launch.errors import LaunchError
from launch.record.run_folder import all_runs
from tests.launch.launcher import ROOT, assert_nothing_left, make_workdir, put_script


def test_an_unknown_backend_is_refused() -> None:
    rule = "a backend must be one of local, ssh, docker, slurm, kubernetes, got 'cloud'"
    with pytest.raises(LaunchError, match=rule):
        BACKENDS["cloud"]


@pytest.mark.slow
def test_a_job_runs_on_such_a_backend_to_its_end(tmp_path: Path) -> None:
    file, state = tmp_path / "lab.yaml", tmp_path / "state"
    put_script(tmp_path / "blaunch", '[ $1 = here ] && shift && exec "$@"')
    file.write_text(
        f"backend: lsf\nhosts: [{{name: here, address: 127.0.0.1}}]\nlsf: {{queue: gpu}}\n"
        f"ports: free\nworkdir: {make_workdir(tmp_path / 'work')}\npython: {sys.executable}\n"
    )
    up = ["up", "--cluster", str(file), "--state-dir", str(state), "--", "steps=5", "print=it's"]
    command = [sys.executable, "-m", "tests.launch.backends.lsf", *up]
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[-1]) == (0, "master/0 is done")
    assert {
        "[ps/0 here] it's",
        "[master/0 here] epoch 0.1/1  step 5/5  loss 1.9  512 images/s",
    } <= {*lines}
    (run,) = all_runs(state)
    assert_nothing_left(run.run_id)
