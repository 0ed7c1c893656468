"""Runs that outlive their terminal: `up --detach`, `attach`, and Ctrl-C on a terminal."""

import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record.output import Line
from launch.record.result import Result
from launch.record.run_folder import RunFolder
from launch.verbs import up as up_verb
from launch.verbs.background import Background
from launch.verbs.up import View
from testbeds.terminal import Terminal
from tests.launch.launcher import LOCAL, ROOT, TWO, Launcher, signals_once, wait_for

pytestmark = pytest.mark.system

QUESTION = "[l]eave running, [s]top (saves first), [c]ontinue?"

OnTerminal = Callable[..., Terminal]


@pytest.fixture
def on_terminal(launcher: Launcher) -> Iterator[OnTerminal]:
    """A function that starts a command of the launcher on a terminal."""
    opened: list[Terminal] = []

    def start(verb: str, *words: str) -> Terminal:
        # So wide that no line that the tests look for is broken.
        opened.append(Terminal([sys.executable, "-m", "launch", verb, *words], 250, cwd=ROOT))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def training_on_a_terminal(launcher: Launcher, on_terminal: OnTerminal, *words: str) -> Terminal:
    """Starts an endless job on a terminal, and waits until it trains."""
    terminal = on_terminal("up", *launcher.up_words(TWO, "--", "steps=100000", *words))
    launcher.wait_until_trains()
    return terminal


def test_detach_returns_when_the_tasks_run_and_stop_ends_the_run(launcher: Launcher) -> None:
    output = launcher.up(TWO, "--detach", "--", "steps=100000")
    run = launcher.run_id()
    folder = launcher.state / run
    assert output.splitlines() == [
        f"run {run}, its folder:",
        f"  {folder}",
        "the run goes on without this terminal; to see it again:",
        f"  python -m launch attach --run {run} --state-dir {launcher.state}",
        "to end it (the master saves first):",
        f"  python -m launch stop --run {run} --state-dir {launcher.state}",
    ]
    for task in ("master/0", "worker/0", "ps/0"):
        assert launcher.pid_of(task)
    status = launcher.verb("status").splitlines()
    assert status[:2] == [f"run {run}: running", f"run folder: {folder}"]
    pid = launcher.pid()
    assert os.getsid(pid) == pid  # a session of its own, with no file of the starter's
    opened = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    assert os.devnull in opened
    ours = [path for path in opened if path.startswith("/") and not path.startswith(str(folder))]
    assert ours == [os.devnull]
    assert launcher.verb("stop") == f"run {run}: stopped by SIGTERM\n"
    assert "[master/0 localhost] saved" in (folder / "output.log").read_text()
    assert '"exit_code": 143' in (folder / "end.json").read_text()
    attached = launcher.verb("attach", exit_code=143).splitlines()
    assert attached[-1] == "exit code 143: stopped by SIGTERM"
    launcher.assert_nothing_left()


def test_a_start_that_fails_is_told_by_detach(launcher: Launcher, tmp_path: Path) -> None:
    script = launcher.workdir / "cifar10_main.py"
    script.unlink()  # a task that started and then failed would be told only if it failed at once
    output = launcher.up(TWO, "--detach", "--", exit_code=1)
    words = f"ps/0 on localhost failed: {launcher.workdir} has no {script.name}; give its"
    assert output.splitlines()[-1] == f"exit code 1: {words} folder with --workdir"
    file = tmp_path / "here.yaml"
    file.write_text("backend: local\nhosts: [localhost]\npass_environment: [NOBODY_SETS_THIS]\n")
    output = launcher.up(("--cluster", str(file)), "--detach", "--", exit_code=2)
    assert output.splitlines()[-1].startswith("error: pass_environment: NOBODY_SETS_THIS not set")
    assert len(list(launcher.state.iterdir())) == 1  # nothing was started for the second


def test_a_run_can_be_left_at_ctrl_c_and_be_shown_again(
    launcher: Launcher, on_terminal: OnTerminal
) -> None:
    up = training_on_a_terminal(launcher, on_terminal)
    up.wait_for_new("images/s")  # the line of the job
    up.type("\x03")
    up.wait_for_new(QUESTION)
    up.type("l\n")
    assert up.finish() == 130
    assert "the run goes on without this terminal; to see it again:" in up.all_lines
    assert any(f"attach --run {launcher.run_id()}" in line for line in up.all_lines)
    up.close()  # the terminal, too
    attached = on_terminal("attach", "--state-dir", str(launcher.state))
    attached.wait_for_new("images/s")
    attached.type("\x03")
    assert attached.finish() == 130
    assert "the run goes on without this terminal; to see it again:" in attached.all_lines
    assert launcher.pid_of("master/0")
    launcher.verb("stop")
    launcher.assert_nothing_left()


def test_stop_at_the_question_saves_and_a_further_ctrl_c_ends_at_once(
    launcher: Launcher, on_terminal: OnTerminal
) -> None:
    up = training_on_a_terminal(launcher, on_terminal, "worker/0:deaf")
    up.type("\x03")
    up.wait_for_new(QUESTION)
    up.type("s\n")
    launcher.wait_for_log("master/0", "saved")
    up.type("\x03")
    assert up.finish() == 130
    launcher.assert_nothing_left()


def test_a_lost_terminal_ends_a_run_that_was_not_left(
    launcher: Launcher, on_terminal: OnTerminal
) -> None:
    up = training_on_a_terminal(launcher, on_terminal, "ps/0:print=serves")
    launcher.wait_for_log("ps/0", "serves")
    up.hang_up()
    folder = RunFolder(launcher.state / launcher.run_id())
    told = "SIGHUP: stopping all tasks"
    wait_for(lambda: told in folder.output_log.read_text(), "the first SIGHUP")
    up.process.kill()
    wait_for(lambda: folder.launcher_pid() is None, "end of the launcher")
    assert "exit code 129: stopped by SIGHUP" in launcher.verb("status", exit_code=129)
    for task in ("master/0", "worker/0", "ps/0"):
        assert launcher.has_saved(task)
    launcher.assert_nothing_left()


def test_a_reader_that_stands_still_keeps_no_signal_from_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    folder = RunFolder.create(tmp_path, make_job(on_this_machine(1, 1)))
    folder.output_log.write_text("line\n" * 50_000)  # more than a pipe holds

    class Process:
        left = 2

        def wait(self, secs: float) -> bool:
            self.left -= 1
            return self.left == 0

        def take_unlogged(self) -> "list[Line]":
            return []

        def signal(self, signum: int) -> None:
            os.close(reading)  # else this process would wait for ever

        def result(self) -> Result:
            return Result(143, "stopped by SIGTERM")

    with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with signals_once(lambda: not select.select([], [writing], [], 0)[1], signal.SIGTERM):
            result = up_verb.watch(cast(Background, Process()), View(folder), lambda: False)
    assert result == Result(143, "stopped by SIGTERM")


def test_a_job_runs_to_its_end_though_all_streams_of_up_are_closed(launcher: Launcher) -> None:
    words = launcher.up_words(LOCAL, "--detach", "--", "steps=3")
    command = [sys.executable, "-m", "launch", "up", *words]
    closed = ["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash", *command]
    subprocess.run(closed, cwd=ROOT, check=True)
    wait_for(lambda: "  done  " in launcher.verb("list"), "the end of the run")
    launcher.assert_nothing_left()


def test_the_tasks_of_a_detached_launcher_that_is_killed_save_and_end(launcher: Launcher) -> None:
    launcher.up(TWO, "--detach", "--", "steps=100000")
    run = launcher.run_id()
    launcher.wait_until_trains()
    os.kill(launcher.pid(), signal.SIGKILL)
    launcher.assert_nothing_left(timeout_secs=60)
    assert launcher.has_saved("master/0")
    output = launcher.verb("attach", exit_code=1)
    words = f"error: run {run}: its launcher has ended; to end the remaining processes: clean"
    assert output.splitlines()[-1] == f"{words} --run {run}"


def test_ctrl_c_in_a_script_stops_without_a_question(launcher: Launcher) -> None:
    words = launcher.up_words(TWO, "--", "steps=100000")
    command = shlex.join([sys.executable, "-m", "launch", "up", *words])
    script = ["bash", "-c", f"{command}; echo code $?"]
    with Terminal(script, 250, cwd=ROOT) as terminal:
        terminal.wait_for_words(" elapsed")
        launcher.wait_until_trains()
        terminal.type("\x03")
        assert terminal.finish() == 0
        assert "exit code 130: stopped by SIGINT" in terminal.all_lines
        assert terminal.all_lines[-1] == "code 130"
        assert QUESTION.encode() not in terminal.raw
        assert not terminal.screen.cursor.hidden
    assert launcher.has_saved("master/0")
    launcher.assert_nothing_left()
