"""`status`, `logs`, `stop` and `clean`, from another terminal."""

import argparse
import contextlib
import json
import os
import pty
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from launch.cluster.host_list import on_this_machine
from launch.cluster.model import Limits
from launch.cluster.tasks import make_job
from launch.record import run_folder
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder
from launch.verbs import cli, runs
from tests.launch.launcher import (
    LOCAL,
    ROOT,
    Launcher,
    assert_nothing_left,
    interrupt,
    processes_of,
    wait_for,
)

TWO = (*LOCAL, "--workers", "1")


def said(parent: Path, capfd: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """Returns what a command on the runs in a folder prints, on both streams."""
    assert cli.main([words[0], "--state-dir", str(parent), *words[1:]]) == code
    printed = capfd.readouterr()
    return printed.out + printed.err


def a_run(parent: Path) -> RunFolder:
    """Makes a run whose launcher has ended."""
    folder = RunFolder.create(parent, make_job(on_this_machine(1, 1)))
    folder.add(launcher={**folder.record()["launcher"], "started": "0"})
    return folder


@pytest.fixture
def running(launcher: Launcher) -> "subprocess.Popen[str]":
    """A job of three tasks, each of which has started a child."""
    process = launcher.start_up(TWO, "--", "steps=100000", "print=hello", "child")
    launcher.wait_for_log("worker/0", "step 3/")

    def children() -> int:
        return sum("time.sleep(300)" in words for words in processes_of(launcher.run_id()).values())

    wait_for(lambda: children() == 3, "three children")
    return process


def test_status_shows_a_run_that_goes_on(
    launcher: Launcher, running: "subprocess.Popen[str]"
) -> None:
    # The launcher writes the status file about once a second.
    wait_for(lambda: "/100,000" in launcher.verb("status"), "steps in status")
    output = launcher.verb("status")
    assert f"run {launcher.run_id()}: running" in output
    assert "   512 images/s\n" in output
    assert "worker/0" in output


def test_logs_on_a_terminal_does_not_control_it(tmp_path: Path) -> None:
    log = a_run(tmp_path).log_path("master/0")
    log.write_bytes("a\x1b[2Jb\u202ec\xff\n".encode() + b"\xff\x9b" + b"x" * 100_000)
    words = ["-m", "launch", "logs", "master/0", "--state-dir", str(tmp_path)]
    reading, terminal = pty.openpty()
    with subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=terminal) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # How a terminal says that it is at its end.
            while data := os.read(reading, 1 << 16):
                shown += data
        os.close(reading)
    assert process.returncode == 0
    assert shown.decode() == "a[2Jbc\xff\r\n\ufffd\ufffd" + "x" * 100_000
    # A file gets every byte.
    done = subprocess.run([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    assert done.stdout == log.read_bytes()


def test_status_shows_no_escape_codes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cells = dict.fromkeys(("state", "step", "images_per_sec", "last"), "c\x1b]0;d\x07")
    row = {"task": "master/0", "host": "localhost", **cells}
    found = {"exit_code": 0, "reason": "a\x1b[2Jb", "time": 0.0, "tasks": [row]}
    a_run(tmp_path).write_status(found)
    output = said(tmp_path, capfd, "status")
    assert "a[2Jb" in output
    assert "c]0;d" in output
    assert not set("\x1b\x07") & set(output)


def test_stop_now_does_not_wait(launcher: Launcher) -> None:
    job = launcher.start_up(TWO, "--", "steps=100000", "deaf")
    launcher.wait_for_log("worker/0", "step 3/")
    began = time.monotonic()
    launcher.verb("stop", "--now")
    assert time.monotonic() - began < Limits().stop_secs / 2  # The tasks ignore SIGTERM.
    job.communicate(timeout=60)
    assert_nothing_left(launcher.run_id())


def test_stop_now_of_a_launcher_that_ends_at_once_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = subprocess.Popen(["sleep", "300"])
    launched = {
        "pid": process.pid,
        "started": run_folder._start_time(process.pid),
        "boot": run_folder._boot_id(),
        "machine": socket.gethostname(),
    }
    (tmp_path / "r1").mkdir()
    record = {"run": "r1", "backend": "local", "launcher": launched, "hosts": [], "tasks": []}
    (tmp_path / "r1" / "run.json").write_text(json.dumps(record))
    threading.Thread(target=process.wait, daemon=True).start()  # a zombie takes signals
    options = argparse.Namespace(state_dir=str(tmp_path), run=None, now=True)
    assert runs.stop(options) == 0
    assert capsys.readouterr().out == "run r1: ended\n"


def test_stop_of_a_run_that_is_over_says_how_it_ended_and_what_to_do(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = a_run(tmp_path)
    folder.write_end(Outcome(0, "master/0 is done", cause=Cause.DONE))
    run_id = folder.run_id
    assert said(tmp_path, capfd, "stop", code=1) == (
        f"error: run {run_id} is over (master/0 is done); to end what it may have left: "
        f"python -m launch clean --run {run_id}\n"
    )


def test_clean_refuses_a_run_that_goes_on(
    launcher: Launcher, running: "subprocess.Popen[str]", capfd: pytest.CaptureFixture[str]
) -> None:
    run_id = launcher.run_id()
    output = said(launcher.state, capfd, "clean", "--run", run_id, code=2)
    assert f"run {run_id} is still running; end it with `stop`" in output
    assert "run" not in said(launcher.state, capfd, "clean")
    assert running.poll() is None


def test_a_run_that_cannot_be_read_does_not_keep_others_from_being_cleaned(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = a_run(tmp_path)
    broken = tmp_path / "20000101-000000-abcd"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    output = said(tmp_path, capfd, "clean", code=1)
    assert f"run {folder.run_id}: nothing was left\n" in output
    assert f"error: run {broken.name}: {broken / 'run.json'} is damaged (" in output


def test_a_signal_ends_clean_at_once_and_the_run_stays_to_be_cleaned(
    launcher: Launcher, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text(f"#!/bin/sh\necho $$ >> {begun}\nexec sleep 300\n")
    (tmp_path / "bin" / "ssh").chmod(0o755)
    launcher.env["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    broken = launcher.state / "20000101-000000-abcd"
    broken.mkdir(parents=True)
    (broken / "run.json").write_text("{")
    hosts = [{"name": name, "user": None, "agent_python": "python3"} for name in ("a", "b")]
    gone = {"pid": 1, "started": "never", "boot": "", "machine": socket.gethostname()}
    record = {"run": "r", "backend": "ssh", "launcher": gone, "hosts": hosts, "tasks": []}
    run = launcher.state / "20000102-000000-abcd"
    run.mkdir()
    (run / "run.json").write_text(json.dumps(record))
    process = launcher.start("clean", "--state-dir", str(launcher.state))
    wait_for(lambda: begun.exists() and begun.read_text().count("\n") == 2, "two connections", 30)
    since = time.monotonic()
    assert interrupt(process).startswith(f"error: run {broken.name}: ")
    assert time.monotonic() - since < 20  # seconds; each host has 30 to answer
    assert process.returncode == 130
    assert not (run / "clean").exists()
    assert not [pid for pid in begun.read_text().split() if Path(f"/proc/{pid}").exists()]


def of_login1(launcher: Launcher) -> RunFolder:
    """Makes it look as if the newest run had a launcher on another machine, which goes on."""
    folder = RunFolder(launcher.state / launcher.run_id())
    folder.add(launcher={**folder.record()["launcher"], "machine": "login1"})
    return folder


def test_a_run_of_another_machines_launcher_is_left_to_that_machine(
    launcher: Launcher, running: "subprocess.Popen[str]", capfd: pytest.CaptureFixture[str]
) -> None:
    run_id = of_login1(launcher).run_id
    words = (
        f"run {run_id}: its launcher runs, or ran, on login1: ask there; if it is gone, to end the "
        f"remaining processes: clean --run {run_id}\n"
    )
    assert said(launcher.state, capfd, "clean") == words
    assert said(launcher.state, capfd, "status", code=1).startswith(words)
    assert said(launcher.state, capfd, "stop", code=1) == f"error: {words}"
    assert said(launcher.state, capfd, "attach", code=1).endswith(f"error: {words}")
    assert running.poll() is None
    assert len(processes_of(run_id)) > 3
    assert "localhost: ended" in launcher.verb("clean", "--run", run_id)


KUBECTL = """#!/bin/sh
echo "$@" >> {place}/calls
case "$*" in
*"get tfjobs.kubeflow.org cifar10-r1 "*) cat {place}/tfjob ;;
*"get tfjobs.kubeflow.org,"*) echo tfjob.kubeflow.org/cifar10-r1 ;;
esac
"""


def of_kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **status: Any) -> str:
    """Makes a run whose launcher has left its TFJob, for a kubectl that knows this job alone.

    Returns:
      The run's id; its folder is in `tmp_path / "runs"`.
    """
    folder = a_run(tmp_path / "runs")
    place = {"context": "lab", "namespace": "vision", "name": "cifar10-r1"}
    folder.add(backend="kubernetes", kubernetes=place)
    (tmp_path / "tfjob").write_text(json.dumps({"kind": "TFJob", "status": status}))
    (tmp_path / "kubectl").write_text(KUBECTL.format(place=tmp_path))
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return folder.run_id


def test_clean_leaves_a_job_that_goes_on_in_kubernetes_to_whoever_names_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    conditions = [{"type": "Suspended", "status": "True"}]
    run_id = of_kubernetes(tmp_path, monkeypatch, conditions=conditions)
    assert said(tmp_path / "runs", capfd, "clean") == (
        f"run {run_id}: continues without its launcher: TFJob cifar10-r1 is suspended; to end it: "
        f"clean --run {run_id}\n"
    )
    assert "delete" not in (tmp_path / "calls").read_text()
    output = said(tmp_path / "runs", capfd, "clean", "--run", run_id)
    assert output == f"run {run_id}: tfjob.kubeflow.org/cifar10-r1: deleted\n"
    assert "delete tfjobs.kubeflow.org" in (tmp_path / "calls").read_text()


def test_a_job_that_goes_on_in_kubernetes_is_said_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run_id = of_kubernetes(tmp_path, monkeypatch, conditions=[])
    words = f"run {run_id}: continues without its launcher: TFJob cifar10-r1; to end it: clean"
    runs = tmp_path / "runs"
    assert said(runs, capfd, "status").splitlines()[0] == f"{words} --run {run_id}"
    last = said(runs, capfd, "attach", code=1).splitlines()[-1]
    assert last == f"error: {words} --run {run_id}"
    (tmp_path / "kubectl").write_text("#!/bin/sh\nexit 1\n")
    first = said(runs, capfd, "status", code=1).splitlines()[0]
    assert first.startswith(f"run {run_id}: its launcher has ended; to end the remaining processes")
    words = "whether its job goes on is not known: kubectl: it failed without an error message"
    assert first.endswith(f"; {words}")


def test_clean_removes_what_a_job_that_is_over_has_left_in_kubernetes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    conditions = [{"type": "Succeeded", "status": "True"}]
    run_id = of_kubernetes(tmp_path, monkeypatch, conditions=conditions)
    output = said(tmp_path / "runs", capfd, "clean")
    assert output == f"run {run_id}: tfjob.kubeflow.org/cifar10-r1: deleted\n"


def test_no_run_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output = said(tmp_path, capfd, "status", code=2)
    rest = "`launch up` starts one, --state-dir names another folder\n"
    assert output == f"error: no run in {tmp_path}; {rest}"


def test_a_run_that_is_not_there_is_an_error_with_those_that_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    newest = tmp_path / "20000101-000000-abcd"
    newest.mkdir()
    (newest / "run.json").touch()
    output = said(tmp_path, capfd, "status", "--run", "zzz", code=2)
    rest = f"the newest there: {newest.name}; --state-dir names another folder\n"
    assert output == f"error: no run zzz in {tmp_path}; {rest}"
