"""Who may read what a run leaves: its owner alone, whatever the umask."""

import os
import subprocess
import sys
from pathlib import Path

from launch.agent.log_file import LogFile
from tests.launch.launcher import LOCAL, ROOT, Launcher


def modes_below(folder: Path) -> "dict[str, int]":
    return {
        str(path.relative_to(folder)): path.stat().st_mode & 0o777
        for path in (folder, *folder.rglob("*"))
    }


def test_the_files_of_a_run_are_their_owners_alone(launcher: Launcher) -> None:
    words = launcher.up_words((*LOCAL, "--workers", "1"), "--", "steps=2", "flood=10")
    command = ["sh", "-c", 'umask 022; exec "$@"', "sh", sys.executable, "-m", "launch"]
    place = ["--state-dir", str(launcher.state)]
    for verb in (["up", "--detach", *words], ["attach", *place], ["clean", *place]):
        subprocess.run([*command, *verb], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    modes = modes_below(launcher.state)
    run = launcher.run_id()
    folders = {".", run, f"{run}/logs"}
    files = ["run.json", "status.json", "events.jsonl", "launcher.log", "launcher.times", "clean"]
    for task in ("master-0", "worker-0", "ps-0"):
        files += [f"logs/{task}.log", f"logs/{task}.times"]
    assert modes == dict.fromkeys(folders, 0o700) | {f"{run}/{name}": 0o600 for name in files}


def test_the_logs_on_a_host_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        log = LogFile(str(tmp_path / "hosts" / "run" / "worker-0.log"))
        log.write(b"hello\n")
        log.close()
    finally:
        os.umask(before)
    files = dict.fromkeys(("worker-0.log", "worker-0.times"), 0o600)
    assert modes_below(tmp_path / "hosts" / "run") == {".": 0o700, **files}
