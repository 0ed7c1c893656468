"""Preparing hosts: the real program for hosts, as a child process here instead of over ssh."""

import argparse
import dataclasses
import errno
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Optional

import pytest

from launch.agent.host_setup import LOCK_NAME
from launch.backends.agent_backend import AgentBackend
from launch.cluster.host_list import from_hosts
from launch.cluster.model import Cluster, Host
from launch.cluster.tasks import make_job
from launch.connect import setup_client
from launch.connect.setup_client import SetupClient
from launch.connect.transport import Transport
from launch.errors import HostError, LaunchError
from launch.verbs import setup as verb
from launch.verbs.check import gather
from launch.verbs.cli import main
from launch.verbs.facts import problems
from launch.verbs.setup_files import code_files, records
from launch.verbs.setup_steps import HostSetup, Wanted, venv_of
from tests.launch.launcher import has_ended, signals_once, wait_for


def transport(before: str = "") -> Transport:
    """Runs the program here, after shell commands such as those of a login shell."""

    def command(host: Host, words: Sequence[str], line: str) -> list[str]:
        return ["sh", "-c", f"{before}\n{line}"]

    def explain(host: Host, code: int, errors: str) -> str:
        return f"exit code {code}: {errors}"

    return Transport(command, explain, lambda log, run_id: "", keeps_logs=True)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A checkout with a few files, and records."""
    root = tmp_path / "here"
    (root / "cifar10").mkdir(parents=True)
    (root / "cifar10_main.py").write_text("print('trains')\n")
    (root / "cifar10" / "model.py").write_text("x = 1\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / ".gitignore").write_text("data\n")
    (root / "requirements.lock").write_text("")
    git = ["git", "-C", str(root)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    write_records(root / "data", b"one")
    return root


def write_records(folder: Path, content: bytes) -> None:
    folder.mkdir()
    (folder / "train.tfrecords").write_bytes(content * 1000)
    digest = hashlib.sha256(content * 1000).hexdigest()
    files = [{"name": "train.tfrecords", "sha256": digest}]
    (folder / "manifest.json").write_text(json.dumps({"splits": {"train": {"files": files}}}))


def wanted(here: Path, source: Optional[str] = None) -> Wanted:
    found, lock = None if source else records(here / "data"), "requirements.lock"
    return Wanted(code_files(here, lock), lock, found, "data", source)


def host(there: Path, python: str = "python3", name: str = "node1") -> Host:
    return Host(name, name, (("master", 1),), workdir=str(there), python=python)


class Run:
    """One run of `setup` on one host."""

    def __init__(self, one: Host, what: Wanted, before: str = "") -> None:
        self.lines: list[str] = []
        self.shown: list[tuple[float, str]] = []
        self.setup = HostSetup(
            one, what, lambda *shown: self.shown.append(shown), self.lines.append
        )
        self._before = before

    def go(self) -> list[str]:
        self.setup.run(transport(self._before))
        return self.lines


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Returns the files of a folder: path -> (time of its last change, content)."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_bare_host_gets_the_code_and_the_records_and_the_second_time_nothing(
    here: Path, tmp_path: Path
) -> None:
    there = tmp_path / "it's; there"
    run = Run(host(there), wanted(here))
    assert run.go()[0] == "code: 5 files copied (0.0 MiB)"
    assert run.lines[1].startswith("venv: python3 is the host's own Python")
    assert run.lines[3] == "records: 2 files copied (0.0 MiB)"
    found = {path: content for path, (_, content) in state(there).items()}
    del found[LOCK_NAME], found[f"data/{LOCK_NAME}"]
    assert found == {
        path: content for path, (_, content) in state(here).items() if not path.startswith(".git/")
    }
    assert os.access(there / "run.sh", os.X_OK)
    parts = [part for part, _ in run.shown]
    assert parts == sorted(parts)
    (there / LOCK_NAME).unlink()
    before = state(there)
    again = Run(host(there), wanted(here)).go()
    assert (again[0], again[3]) == ("code: is the same", "records: are there")
    (there / LOCK_NAME).unlink()
    assert state(there) == before


def test_what_differs_is_mended_and_only_that(here: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    Run(host(there), wanted(here)).go()
    before = state(there)
    (there / "cifar10" / "model.py").write_text("x = 2\n")
    (there / "cifar10" / "old.py").write_text("only there\n")
    (there / "cifar10" / "notes.txt").write_text("kept\n")
    (there / "output").mkdir()
    (there / "output" / "old.py").write_text("kept, too\n")
    (here / "cifar10" / "new.py").write_text("not known to Git yet\n")
    assert Run(host(there), wanted(here)).go()[0] == "code: 2 files copied (0.0 MiB)"
    after = state(there)
    assert after["cifar10/model.py"][1] == b"x = 1\n"
    assert "cifar10/new.py" in after
    assert "cifar10/old.py" not in after
    assert {"cifar10/notes.txt", "output/old.py"} <= set(after)
    assert after["cifar10_main.py"] == before["cifar10_main.py"]


def test_records_that_differ_or_are_marked_are_replaced(here: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    write_records(there / "data", b"two")
    (there / "data" / "other.tfrecords").write_bytes(b"of another set")
    (there / "data" / "INCOMPLETE").touch()
    Run(host(there), wanted(here)).go()
    contents = {name: content for name, (_, content) in state(there / "data").items()}
    del contents[LOCK_NAME]
    assert contents == {name: content for name, (_, content) in state(here / "data").items()}


def test_records_that_do_not_match_their_manifest_leave_the_folder_marked(
    here: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    (here / "data" / "train.tfrecords").write_bytes(b"damaged")
    with pytest.raises(HostError) as caught:
        Run(host(there), wanted(here)).go()
    assert str(caught.value) == (
        "node1: records: train.tfrecords came with other bytes than expected: it is changing where "
        "it comes from, or is damaged there (records: python -m data_prep verify DIR)"
    )
    assert (there / "data" / "INCOMPLETE").exists()
    assert not list((there / "data").glob("train*"))


def test_without_records_here_the_host_keeps_its_own(here: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (here / "data" / "INCOMPLETE").touch()
    lines = Run(host(there), wanted(here)).go()
    assert lines[3].startswith("records: none in data here to copy; make them here")


def test_a_ps_needs_no_records(here: Path, tmp_path: Path) -> None:
    one = dataclasses.replace(host(tmp_path / "there"), roles=(("ps", 1),))
    assert Run(one, wanted(here)).go()[2:] == ["kernels: not needed", "records: not needed"]
    assert not (tmp_path / "there" / "data").exists()


def test_a_folder_that_is_no_venv_is_left_alone(here: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / ".venv").mkdir(parents=True)
    (there / ".venv" / "mine").touch()
    with pytest.raises(HostError, match=r"^node1: venv: \.venv is there and is no venv; move it"):
        Run(host(there, ".venv/bin/python"), wanted(here)).go()
    assert (there / ".venv" / "mine").exists()


def test_kernels_that_cannot_be_compiled_are_left_out_with_a_note(
    here: Path, tmp_path: Path
) -> None:
    line = Run(host(tmp_path / "there"), wanted(here)).go()[2]
    assert line.startswith("kernels: left out: ")
    assert line.endswith("training takes longer without")


@pytest.mark.parametrize("noise", ["echo welcome", "printf 'no line end'; echo; echo >&2 motd"])
def test_what_a_login_shell_prints_does_not_matter(here: Path, tmp_path: Path, noise: str) -> None:
    assert Run(host(tmp_path / "there"), wanted(here), noise).go()[0].startswith("code: 5 files")


def test_a_working_directory_that_cannot_be_made_is_named(here: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "x"
    with pytest.raises(HostError, match="choose another folder with --workdir"):
        Run(host(place), wanted(here)).go()


def test_a_process_too_many_is_not_taken_for_a_missing_ssh(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    what = wanted(here)
    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(HostError, match="^node1: connection: sh: Too many open files; raise `ulim"):
        Run(host(tmp_path / "there"), what).go()


def test_a_host_that_does_not_start_the_program_says_why(here: Path, tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        Run(host(tmp_path / "there"), wanted(here), "echo >&2 no way; exit 3").go()
    assert str(caught.value) == "node1: connection: exit code 3: no way"


def test_the_reason_is_read_although_it_comes_after_the_end(here: Path, tmp_path: Path) -> None:
    late = "(exec >&-; sleep 0.5; echo >&2 no way) & exit 3"
    with pytest.raises(HostError) as caught:
        Run(host(tmp_path / "there"), wanted(here), late).go()
    assert str(caught.value) == "node1: connection: exit code 3: no way"


@pytest.mark.parametrize("times", [4, 5])
def test_a_host_that_is_busy_is_tried_again(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr("launch.connect.tries.PAUSE_SECS", (0.01, 0.02))
    tries = tmp_path / "tries"
    before = (
        f"echo >> {tries}; [ $(wc -l < {tries}) -gt {times} ] || {{ echo busy >&2; exit 255; }}"
    )
    way = dataclasses.replace(
        transport(before), is_busy=lambda host, code, errors: (code, errors) == (255, "busy")
    )
    run = Run(host(tmp_path / "there"), wanted(here))
    if times == 4:
        run.setup.run(way)
        assert (tmp_path / "there" / "data" / "manifest.json").exists()
    else:
        with pytest.raises(HostError, match="^node1: connection: exit code 255: busy$"):
            run.setup.run(way)
    assert tries.read_text() == "\n" * 5


@pytest.mark.parametrize("pause_secs", [300.0, 0.0])
def test_a_preparation_that_is_closed_between_two_tries_makes_no_other(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause_secs: float
) -> None:
    monkeypatch.setattr("launch.connect.tries.PAUSE_SECS", (pause_secs, pause_secs))
    tries = tmp_path / "tries"
    run = Run(host(tmp_path / "there"), wanted(here))
    asked = threading.Event()

    def is_busy(host: Host, code: int, errors: str) -> bool:
        asked.set()
        if not pause_secs:  # else `close` comes during the pause
            run.setup.close()
        return (code, errors) == (255, "busy")

    way = dataclasses.replace(
        transport(f"echo >> {tries}; echo busy >&2; exit 255"), is_busy=is_busy
    )
    errors: list[str] = []

    def work() -> None:
        try:
            run.setup.run(way)
        except HostError as error:
            errors.append(str(error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert asked.wait(60)
    run.setup.close()
    thread.join(30)
    assert errors == ["node1: connection: exit code 255: busy"]
    assert tries.read_text() == "\n"


def test_a_preparation_that_is_closed_before_it_connects_does_nothing(
    here: Path, tmp_path: Path
) -> None:
    run = Run(host(tmp_path / "there"), wanted(here))
    run.setup.close()
    with pytest.raises(HostError, match="^node1: connection: stopped$"):
        run.go()
    assert not (tmp_path / "there").exists()


def test_a_silent_host_is_given_up(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_client, "SILENCE_SECS", 0.5)
    monkeypatch.setattr(setup_client, "_BEAT_SECS", 0.05)
    hello = 'echo \'cifar10-setup {"event": "hello"}\'; exec sleep 600'
    with pytest.raises(HostError) as caught:
        Run(host(tmp_path / "there"), wanted(here), hello).go()
    assert str(caught.value).startswith("node1: connection: no message for 0.5 s: is it up")


def test_a_host_gets_no_file_that_it_should_not_have(here: Path, tmp_path: Path) -> None:
    (here.parent / "secret").write_text("hunter2")
    events = (
        {"event": "hello"},
        {"event": "done"},  # after `enter`
        {"event": "done", "missing": ["../secret", 5, "cifar10_main.py"], "others": "x"},
        {"event": "done", "missing": []},  # after the copy
        {"event": "failed", "reason": "that is all", "last": [1, "x" * 5000]},
    )
    said = "".join(f"echo 'cifar10-setup {json.dumps(event)}'\n" for event in events)
    got = tmp_path / "got"
    run = Run(host(tmp_path / "there"), wanted(here), f"{said} exec cat > {got}")
    with pytest.raises(HostError, match="^node1: kernels: that is all\n    x{1000}$"):
        run.go()
    assert run.lines[0] == "code: 1 files copied (0.0 MiB)"
    assert "trains" in got.read_text()
    assert "hunter2" not in got.read_text()


def test_closing_ends_what_runs_on_the_host(here: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    pids = tmp_path / "pids"
    slow.write_text(
        f"#!/bin/sh\nsleep 600 &\necho $$ $! > {pids}.part\nmv {pids}.part {pids}\nwait\n"
    )
    slow.chmod(0o755)
    run = Run(host(tmp_path / "there", str(slow)), wanted(here, source="synthetic"))
    failed: list[str] = []

    def work() -> None:
        try:
            run.go()
        except HostError as error:
            failed.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(pids.exists, "the slow program")
    run.setup.close()
    thread.join()
    assert failed[0].startswith("node1: kernels: ")
    for pid in pids.read_text().split():
        wait_for(partial(has_ended, pid), f"the end of {pid}")


def test_of_hosts_that_share_a_folder_one_waits_and_finds_everything_there(
    here: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    first = SetupClient(transport(), host(there), lambda event: None)
    first.open()
    first.ask("enter", workdir=str(there))
    second = Run(host(there, name="node2"), wanted(here))
    thread = threading.Thread(target=second.go)
    thread.start()
    wait_for(lambda: len(second.shown) > 1, "two reports that it waits")
    words = f"connection: waits for process {first._process.pid} on {socket.gethostname()}, which"
    assert second.lines == [f"{words} prepares this folder"]
    assert sorted(path.name for path in there.iterdir()) == [LOCK_NAME]
    first.close()
    thread.join()
    assert second.lines[1] == "code: 5 files copied (0.0 MiB)"


def on_hosts_that_share_records(tmp_path: Path, what: Wanted, python: str = "python3") -> list[Run]:
    """Returns a run for each of two hosts, which have working directories of their own."""
    shared = dataclasses.replace(what, folder=str(tmp_path / "shared"))
    names = ("node1", "node2")
    return [Run(host(tmp_path / name, python, name), shared) for name in names]


def test_of_hosts_that_share_records_one_copies_them_and_the_others_wait(
    here: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    first = SetupClient(transport(), host(tmp_path / "first"), lambda event: None)
    first.open()
    first.ask("enter", workdir=str(tmp_path / "first"))
    first.ask("hold", folder=str(shared))
    runs = on_hosts_that_share_records(tmp_path, wanted(here))
    threads = [threading.Thread(target=run.go) for run in runs]
    for thread in threads:
        thread.start()
    words = f"records: waits for process {first._process.pid} on {socket.gethostname()}, which"
    for run in runs:
        wait_for(partial(run.lines.__getitem__, slice(3, 4)), "the line that it waits")
        assert run.lines[3] == f"{words} prepares this folder"
    assert sorted(path.name for path in shared.iterdir()) == [LOCK_NAME]
    first.close()
    for thread in threads:
        thread.join()
    last = sorted(run.lines[-1] for run in runs)
    assert last == ["records: 2 files copied (0.0 MiB)", "records: are there"]
    assert not (shared / "INCOMPLETE").exists()


def test_complete_records_in_a_read_only_folder_need_no_lock(here: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shutil.copytree(here / "data", shared)
    shared.chmod(0o555)
    before = state(shared)
    for run in on_hosts_that_share_records(tmp_path, wanted(here)):
        assert run.go()[3:] == ["records: are there"]
    assert state(shared) == before


def test_records_in_the_working_directory_itself_need_no_second_lock(
    here: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    lines = Run(host(there), dataclasses.replace(wanted(here), folder=str(there))).go()
    assert lines[3:] == ["records: 2 files copied (0.0 MiB)"]


def test_a_folder_of_records_in_which_nothing_can_be_locked_gets_them_with_a_note(
    here: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    (shared / LOCK_NAME).mkdir(parents=True)
    lines = on_hosts_that_share_records(tmp_path, wanted(here))[0].go()
    assert lines[3].startswith(f"records: no lock in {shared} (Is a directory): hosts that share")
    assert lines[4] == "records: 2 files copied (0.0 MiB)"


def test_a_folder_in_which_nothing_can_be_locked_is_prepared_with_a_note(
    here: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    (there / LOCK_NAME).mkdir(parents=True)
    lines = Run(host(there), wanted(here)).go()
    assert lines[0].startswith(f"connection: no lock in {there} (Is a directory): hosts that share")
    assert lines[1] == "code: 5 files copied (0.0 MiB)"


def test_closing_in_the_middle_of_a_file_leaves_no_part_of_it(here: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    client = SetupClient(transport(), host(there), lambda event: None)
    client.open()
    client.ask("enter", workdir=str(there))
    order = {"do": "write", "folder": ".", "path": "big", "digest": "", "size": 9, "mode": 0o600}
    client._send("order", json.dumps(order).encode())
    client._send("data", b"half")
    wait_for(lambda: any(there.glob("big.part-*")), "the beginning of the file")
    client.close()
    assert not any(there.glob("big*"))


@pytest.mark.parametrize(
    ("python", "venv"),
    [
        (".venv/bin/python", ".venv"),
        ("./envs/a/bin/python3.11", "envs/a"),
        ("/srv/x/.venv/bin/python", "/srv/x/.venv"),
        ("python3", None),
        ("bin/python", None),
        ("/usr/bin/python3", None),
        ("../other/bin/python", None),
        ("/srv/xy/bin/python", None),
    ],
)
def test_a_venv_is_made_in_the_working_directory_only(python: str, venv: Optional[str]) -> None:
    assert venv_of(host(Path("/srv/x"), python)) == venv


def test_what_git_ignores_is_not_copied_and_what_is_gone_is_left_out(here: Path) -> None:
    (here / "cifar10" / "new.py").touch()
    (here / "notes.txt").touch()  # unknown to Git, and outside of the packages
    (here / "run.sh").unlink()
    assert set(code_files(here, "requirements.lock").digests) == {
        ".gitignore", "cifar10_main.py", "cifar10/model.py", "cifar10/new.py", "requirements.lock"
    }  # fmt: skip


def test_the_code_of_an_archive_is_copied_without_git(here: Path) -> None:
    (here / ".git").rename(here.parent / "git")
    (here / "cifar10" / "__pycache__").mkdir()
    (here / "cifar10" / "__pycache__" / "model.pyc").touch()
    assert set(code_files(here, "requirements.lock").digests) == {
        "cifar10_main.py", "cifar10/model.py", "requirements.lock"
    }  # fmt: skip


def test_an_archive_in_another_checkout_is_complete(here: Path) -> None:
    (here / ".git").rename(here.parent / ".git")
    subprocess.run(["git", "-C", str(here.parent), "rm", "-rq", "--cached", "."], check=True)
    assert set(code_files(here, "requirements.lock").digests) == {
        "cifar10_main.py", "cifar10/model.py", "requirements.lock"
    }  # fmt: skip


def test_check_compares_all_files_that_a_task_imports(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("node1", "node2")]
    for folder in folders:
        for package in ("cifar10_program", "data_prep"):
            (folder / package).mkdir(parents=True)
        for name in ("cifar10_main.py", "cifar10_program/streams.py", "data_prep/cli.py"):
            (folder / name).write_text("x = 1\n")
    job = make_job(of_two(tmp_path))
    (folders[1] / "data_prep" / "cli.py").write_text("x = 2\n")
    facts = gather(job, transport(), None)
    (wrong,) = [words for words in problems(job, facts) if ": code is " in words]
    assert wrong.startswith("node2: code is ")


class Here(AgentBackend):
    """The ssh backend, but on this machine."""

    transport = transport()


def options(**given: Any) -> argparse.Namespace:
    found = argparse.Namespace(arguments=[], requirements="requirements.lock", source=None)
    found.cluster, found.python = "lab.yaml", None
    vars(found).update(given)
    return found


@pytest.fixture
def checked(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts of the jobs that were checked."""
    found: list[str] = []

    def check(job: Any) -> int:
        found.extend(one.name for one in job.cluster.hosts)
        return 7

    monkeypatch.chdir(here)
    monkeypatch.setattr("launch.verbs.check.check", check)
    monkeypatch.setattr(verb, "backend_named", lambda name: Here())
    return found


def of_two(tmp_path: Path) -> Cluster:
    cluster = from_hosts("node1,node2", python="python3", workdir="x")
    hosts = [dataclasses.replace(one, workdir=str(tmp_path / one.name)) for one in cluster.hosts]
    return dataclasses.replace(cluster, hosts=tuple(hosts))


def test_all_hosts_are_prepared_and_the_exit_code_is_that_of_the_check(
    checked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verb.setup(of_two(tmp_path), options()) == 7
    assert checked == ["node1", "node2"]
    output = capsys.readouterr().out
    for name in checked:
        assert (tmp_path / name / "data" / "manifest.json").exists()
        assert f"{name}: records: 2 files copied (0.0 MiB)\n" in output


def test_records_in_the_home_of_nobody_are_none(
    checked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data-dir", "~no-one/x"]
    assert verb.setup(of_two(tmp_path), options(arguments=arguments)) == 7
    assert "node1: records: none in ~no-one/x here to copy" in capsys.readouterr().out


def test_a_host_that_fails_is_named_and_the_others_are_finished(
    checked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node1").touch()
    assert verb.setup(of_two(tmp_path), options()) == 1
    output = capsys.readouterr().out
    assert f"problem: node1: connection: {tmp_path}/node1: " in output
    assert output.splitlines()[-1] == ("1 failed, 1 ready; the same command goes on where it was")
    assert (tmp_path / "node2" / "data" / "manifest.json").exists()
    assert checked == []


def test_a_signal_ends_all_hosts_at_once_and_gives_its_exit_code(
    checked: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun = tmp_path / "begun"

    class Silent(AgentBackend):
        transport = transport(
            f'echo \'cifar10-setup {{"event": "hello"}}\'; echo >> {begun}; exec sleep 600'
        )

    begun.touch()
    monkeypatch.setattr(verb, "backend_named", lambda name: Silent())
    monkeypatch.setattr(setup_client, "_CLOSE_SECS", 0.5)
    names = ",".join(f"node{i}" for i in range(16))
    cluster = from_hosts(names, python="python3", workdir=str(tmp_path / "there"))
    with signals_once(lambda: begun.read_text() == "\n" * 16, signal.SIGHUP) as told:
        assert verb.setup(cluster, options()) == 129
    assert time.monotonic() - told[0] < 5.0  # one after the other, they take 8 s
    assert capsys.readouterr().out.endswith("stopped; the same command goes on where it was\n")
    assert checked == []


def test_a_signal_ends_the_hosts_that_wait_to_be_tried_again(
    checked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = tmp_path / "tries"
    tries.touch()

    class Busy(AgentBackend):
        transport = dataclasses.replace(
            transport(f"echo >> {tries}; echo busy >&2; exit 255"),
            is_busy=lambda host, code, errors: True,
        )

    monkeypatch.setattr(verb, "backend_named", lambda name: Busy())
    monkeypatch.setattr("launch.connect.tries.PAUSE_SECS", (60.0, 60.0))
    with signals_once(lambda: tries.read_text() == "\n" * 2, signal.SIGINT) as told:
        assert verb.setup(of_two(tmp_path), options()) == 130
    assert time.monotonic() - told[0] < 30.0  # seconds
    assert tries.read_text() == "\n" * 2
    assert checked == []


def test_hosts_without_a_file_get_a_venv_and_the_other_commands_are_told_of_it(
    checked: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = of_two(tmp_path)
    told = {host.python for host in verb.with_python(cluster, options(cluster=None)).hosts}
    assert told == {".venv/bin/python"}
    given = options(cluster=None, python="python3.11")
    assert verb.with_python(cluster, given) == cluster
    words = "the other commands need it, too: --python .venv/bin/python\n"
    for default, is_told in (("python3", True), (".venv/bin/python", False)):
        monkeypatch.setattr(verb, "default_python", lambda default=default: default)
        assert verb.setup(cluster, options(cluster=None)) == 7
        assert capsys.readouterr().out.endswith(words) == is_told


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--on", "docker", "--hosts", "a"), "not of docker: tasks run in the image, which setup"),
        (("--on", "slurm"), "not of slurm: its nodes share a folder: `make venv`"),
        (("--on", "kubernetes"), "not of kubernetes: tasks run in the image, which the nodes"),
        (("--on", "local"), "not of local: tasks run in this checkout: `make venv` prepares it"),
    ],
)
def test_other_backends_are_told_what_to_do_instead(
    flags: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["setup", *flags]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: setup prepares hosts of --on ssh, ")
    assert words in error
    assert error.count("\n") == 1


def test_a_folder_that_is_no_checkout_is_named_with_the_way_of_an_installed_package(
    tmp_path: Path,
) -> None:
    with pytest.raises(LaunchError) as refused:
        code_files(tmp_path, "requirements.lock")
    assert str(refused.value) == (
        f"setup copies a checkout, but {tmp_path} has no cifar10_main.py; run it in a checkout, "
        "or install the same package on the hosts"
    )


def test_a_requirements_file_that_is_not_there_is_refused(here: Path) -> None:
    with pytest.raises(LaunchError, match="--requirements must be a file in"):
        code_files(here, "no.lock")
