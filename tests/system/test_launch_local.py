"""Tasks on this machine whose disk is full, a file system of the test's own."""

import time
from pathlib import Path
from typing import cast

import pytest

from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record.run_folder import RunFolder
from launch.supervise.background import Background
from launch.verbs import foreground, view
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
    assert "No space left on device; its log lacks lines until that is mended" in output
    assert "[master/0 localhost] epoch 0.1/1  step 20/20" in output
    assert output.splitlines()[-1] == "master/0 is done"
    assert_nothing_left(run_id)


class Endless:
    """A launcher that goes on, and has nothing to say."""

    has_left = False

    def wait(self, secs: float) -> bool:
        time.sleep(secs)
        return False

    def leave(self) -> None:
        self.has_left = True


def test_a_detached_start_on_a_full_disk_returns_and_says_why(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(view, "_SILENT_SECS", 0.5)
    folder = RunFolder.create(small_disk, make_job(on_this_machine(1, 1)))
    with pytest.raises(OSError, match="No space"):
        (small_disk / "full").write_bytes(bytes(100 << 10))
    process = Endless()
    with pytest.raises(foreground.NotSeen, match="whether the job has started cannot be seen"):
        foreground.follow_start(cast(Background, process), folder, lambda: False)
    assert process.has_left
    words = f"{folder.path}: No space left on device; nothing was written there for 0.5 s"
    assert capfd.readouterr().out.startswith(words)
