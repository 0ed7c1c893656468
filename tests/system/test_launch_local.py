"""Tasks on this machine whose disk is full, a file system of the test's own."""

from pathlib import Path

import pytest

from tests.launch.launcher import LOCAL, Launcher, assert_nothing_left

pytestmark = pytest.mark.system


def test_a_full_disk_ends_neither_the_job_nor_its_output(tmp_path: Path, small_disk: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.state = small_disk / "state"
    try:
        output = launcher.up((*LOCAL, "--workers", "1"), "--", "steps=20", "flood=2000")
        run_id = launcher.run_id()
    finally:
        launcher.end()
    assert "No space left on device; its log stops here" in output
    assert "[master/0 localhost] epoch 0.1/1  step 20/20" in output
    assert output.splitlines()[-1] == "master/0 is done"
    assert_nothing_left(run_id)
