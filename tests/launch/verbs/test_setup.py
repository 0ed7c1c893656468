"""Preparing hosts: the real program for hosts, as a child process here instead of over ssh."""

import argparse
import dataclasses
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Optional

import pytest

from launch.agent.host_setup import _PART, LOCK_NAME
from launch.backends.agent_backend import AgentBackend
from launch.cluster.host_list import ROOT, from_hosts
from launch.cluster.model import Cluster, Host
from launch.connect import bootstrap, preparing
from launch.connect.preparing import Files, Preparations, code_files, digests, order, records
from launch.connect.transport import Transport
from launch.errors import LaunchError
from launch.verbs import setup as verb
from launch.verbs.cli import main
from launch.verbs.setup import venv_of
from tests.launch.launcher import has_ended, signals_once, wait_for

pytestmark = pytest.mark.system


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
    (root / "cifar10" / "__pycache__").mkdir(parents=True)
    (root / "cifar10_main.py").write_text("print('trains')\n")
    (root / "cifar10" / "model.py").write_text("x = 1\n")
    (root / "cifar10" / "run.sh").write_text("#!/bin/sh\n")
    (root / "cifar10" / "run.sh").chmod(0o755)
    (root / "cifar10" / "__pycache__" / "model.pyc").touch()
    (root / "notes.txt").touch()
    (root / "requirements.lock").write_text("")
    write_records(root / "data", b"one")
    return root


def write_records(folder: Path, content: bytes) -> None:
    folder.mkdir()
    (folder / "train.tfrecords").write_bytes(content * 1000)
    digest = hashlib.sha256(content * 1000).hexdigest()
    files = [{"name": "train.tfrecords", "sha256": digest}]
    (folder / "manifest.json").write_text(json.dumps({"splits": {"train": {"files": files}}}))


CODE = ["cifar10/model.py", "cifar10/run.sh", "cifar10_main.py", "requirements.lock"]
OF_OTHERS = "cifar10/model.py.5.node7.part"  # of a host that may share the folder


def host(there: Path, python: str = "python3", name: str = "node1") -> Host:
    return Host(name, name, (("master", 1),), workdir=str(there), python=python)


class Run:
    """One run of `setup` on one host."""

    def __init__(self, one: Host, here: Path, before: str = "", **more: Any) -> None:
        self.lines: list[str] = []
        self.failed: dict[str, str] = {}
        self.stops: list[int] = []
        found = {} if "source" in more else records(here / "data")
        what = {"folder": "data", "python": one.python, "records": digests(found) or None, **more}
        self._host = one
        self._preparations = Preparations(
            transport(before),
            Files(code_files(here, "requirements.lock"), found),
            lambda host: order(host, **what),
            lambda name, words: self.lines.append(words),
        )

    def go(self) -> list[str]:
        self.failed = self._preparations.run([self._host], self.stops)
        return self.lines

    def in_a_thread(self) -> threading.Thread:
        thread = threading.Thread(target=self.go)
        thread.start()
        return thread

    def failure(self) -> str:
        self.go()
        return self.failed[self._host.name]


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Returns the files of a folder: path -> (time of its last change, content)."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != LOCK_NAME
    }


def test_a_bare_host_gets_what_it_needs_and_the_second_time_no_records(
    here: Path, tmp_path: Path
) -> None:
    there = tmp_path / "it's; there"
    lines = Run(host(there), here).go()
    assert lines[:2] == ["code: 4 files copied", "records: 2 files copied"]
    assert "No module named 'cifar10.ops'" in lines[2]
    assert lines[2].startswith("kernels: left out: ")
    assert lines[2].endswith("; training takes longer without")
    assert sorted(state(there)) == sorted([*CODE, "data/manifest.json", "data/train.tfrecords"])
    assert os.access(there / "cifar10" / "run.sh", os.X_OK)
    before = state(there / "data")
    assert Run(host(there), here).go()[:2] == ["code: 4 files copied", "records: are there"]
    assert state(there / "data") == before


def test_code_that_differs_is_mended_and_python_files_that_are_not_here_go(
    here: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    (there / "cifar10").mkdir(parents=True)
    (there / "cifar10" / "model.py").write_text("old")
    half = f"cifar10/half.py.5{_PART}"
    for name in ("cifar10/gone.py", half, "cifar10/built.so", OF_OTHERS, "mine.py"):
        (there / name).touch()
    Run(host(there), here, folder=".", records=None).go()
    assert sorted(state(there)) == sorted([*CODE, "cifar10/built.so", OF_OTHERS, "mine.py"])
    assert (there / "cifar10" / "model.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("change", ["train.tfrecords", "other.tfrecords", "INCOMPLETE"])
def test_records_that_differ_or_are_marked_are_replaced(
    here: Path, tmp_path: Path, change: str
) -> None:
    there = tmp_path / "there"
    shutil.copytree(here / "data", there / "data")
    (there / "data" / change).write_bytes(b"else")
    assert Run(host(there), here).go()[1] == "records: 2 files copied"
    assert sorted(state(there / "data")) == ["manifest.json", "train.tfrecords"]
    assert (there / "data" / "train.tfrecords").read_bytes() == b"one" * 1000


def test_records_that_do_not_match_their_manifest_leave_the_folder_marked(
    here: Path, tmp_path: Path
) -> None:
    (here / "data" / "train.tfrecords").write_bytes(b"changed since")
    assert (
        "records: they came with other bytes than expected"
        in Run(host(tmp_path / "there"), here).failure()
    )
    assert (tmp_path / "there" / "data" / "INCOMPLETE").exists()


@pytest.mark.parametrize("change", ["INCOMPLETE", "no manifest's file", "nothing"])
def test_an_incomplete_set_here_is_none(here: Path, change: str) -> None:
    if change == "INCOMPLETE":
        (here / "data" / change).touch()
    else:
        (here / "data" / "train.tfrecords").unlink()
    if change == "nothing":
        (here / "data" / "manifest.json").unlink()
    assert records(here / "data") == {}


def test_what_a_login_shell_prints_does_not_matter(here: Path, tmp_path: Path) -> None:
    noise = "printf 'no line end'; echo; echo >&2 motd"
    assert Run(host(tmp_path / "there"), here, noise).go()[0] == "code: 4 files copied"


def test_a_working_directory_that_cannot_be_made_is_named(here: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = Run(host(tmp_path / "file" / "x"), here).failure()
    assert words.startswith(f"node1: connection: {tmp_path}/file/x: ")
    assert words.endswith("choose another folder with --workdir")


def test_a_file_here_that_cannot_be_read_is_named(here: Path, tmp_path: Path) -> None:
    run = Run(host(tmp_path / "there"), here)
    (here / "cifar10" / "model.py").unlink()
    words = f"node1: code: {here}/cifar10/model.py: No such file or directory"
    assert run.failure() == words


def test_a_step_that_fails_is_named_with_its_last_lines(here: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho one\necho two >&2\nexit 3\n")
    python.chmod(0o755)
    run = Run(host(tmp_path / "there", str(python)), here, source="synthetic", records=None)
    words = "node1: records: data_prep ended with exit code 3\n    one\n    two"
    assert run.failure() == words


def test_a_silent_host_is_given_up(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "SILENCE_SECS", 0.3)
    words = Run(host(tmp_path / "there"), here, "echo hello; exec sleep 600").failure()
    assert words.startswith(
        "node1: connection: no message for 0.3 s: is it up, and is the network?"
    )


def test_a_host_gets_no_file_that_it_should_not_have(here: Path, tmp_path: Path) -> None:
    (here.parent / "secret").write_text("hunter2")
    got = tmp_path / "got"
    lines = ("send ../secret", "step 1", f"say {'x' * 5000}", "5", "failed that is all")
    said = "".join(f"echo 'cifar10-setup {line}'\n" for line in lines[:-1])
    gets = f"read n; echo $n > {got}; head -c $((n + 10240)) >> {got}"
    before = f"{said} {gets}; echo 'cifar10-setup {lines[-1]}'; exit"
    run = Run(host(tmp_path / "there"), here, before)
    assert run.failure() == "node1: 1: that is all"
    data = got.read_bytes()
    length, _, rest = data.partition(b"\n")
    with tarfile.open(fileobj=io.BytesIO(rest[int(length) :]), mode="r|") as archive:
        assert sorted(archive.getnames()) == [f"code/{name}" for name in CODE]
    assert b"hunter2" not in data
    assert len(run.lines) == 1
    assert len(run.lines[0]) <= 300


def test_the_end_of_the_launcher_ends_what_runs_on_the_host(here: Path, tmp_path: Path) -> None:
    slow, pids = tmp_path / "slow", tmp_path / "pids"
    slow.write_text(
        f"#!/bin/sh\nsleep 600 &\necho $$ $! > {pids}.part\nmv {pids}.part {pids}\nwait\n"
    )
    slow.chmod(0o755)
    command = ["python3", "-I", "-S", "-c", bootstrap.FIRST]
    there = host(tmp_path / "there", str(slow))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        preparing._write(process, preparing._source(order(there, python=str(slow), code=0)))
        archive = io.BytesIO()
        tarfile.open(fileobj=archive, mode="w|").close()
        preparing._write(process, archive.getvalue())
        wait_for(pids.exists, "the slow program")
        assert process.stdin is not None
        process.stdin.close()
        for pid in pids.read_text().split():
            wait_for(partial(has_ended, pid), f"the end of {pid}")


def held(folder: Path) -> "subprocess.Popen[bytes]":
    """Locks a folder as another host would; returns the process that holds it."""
    folder.mkdir(exist_ok=True)
    code = (
        "import fcntl, os, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); "
        "file.write('process 5 on node7'); file.flush(); print(flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, folder / LOCK_NAME],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.mark.parametrize("shared", ["records"])
def test_of_hosts_that_share_a_folder_one_waits_and_finds_everything_there(
    here: Path, tmp_path: Path, shared: str
) -> None:
    folder = tmp_path / shared
    there = host(folder if shared == "there" else tmp_path / "own")
    place = "data" if shared == "there" else str(folder)
    run = Run(there, here, folder=place)
    with held(folder) as first:
        thread = run.in_a_thread()
        wait_for(lambda: run.lines, "the line that it waits")
        assert run.lines == ["connection: waits for process 5 on node7"]
        assert [path.name for path in folder.iterdir()] == [LOCK_NAME]
        shutil.copytree(here / "data", folder / place, dirs_exist_ok=True)
        first.communicate()
    thread.join()
    assert run.lines[1:3] == ["code: 4 files copied", "records: are there"]


def test_complete_records_in_a_read_only_folder_need_no_lock(here: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shutil.copytree(here / "data", shared)
    assert Run(host(tmp_path / "there"), here, folder=str(shared)).go()[1] == "records: are there"
    assert not (shared / LOCK_NAME).exists()


@pytest.mark.parametrize("folder", ["there/data"])
def test_a_folder_in_which_nothing_can_be_locked_is_prepared_with_a_note(
    here: Path, tmp_path: Path, folder: str
) -> None:
    place = tmp_path / folder
    (place / LOCK_NAME).mkdir(parents=True)
    lines = Run(host(tmp_path / "there"), here).go()
    assert lines[0].startswith(f"connection: no lock in {place} (Is a directory); if hosts share")
    assert lines[1:3] == ["code: 4 files copied", "records: 2 files copied"]


def test_records_are_made_there_and_the_second_time_they_are_there(
    here: Path, tmp_path: Path
) -> None:
    # data_prep with a set of 40 images, which setup has no flag for.
    python = tmp_path / "python"
    make = f'PYTHONPATH={ROOT} exec {sys.executable} "$@" --synthetic-size 40'
    python.write_text(f"#!/bin/sh\n[ $2 = data_prep ] || exit 1\ncd {ROOT}\n{make}\n")
    python.chmod(0o755)
    what: dict[str, Any] = {
        "source": "synthetic",
        "folder": str(tmp_path / "shared"),
        "records": None,
    }
    for words in ("made from synthetic", "are there"):
        lines = Run(host(tmp_path / "there", str(python)), here, **what).go()
        assert lines[-1] == f"records: {words}"


@pytest.mark.parametrize(
    ("python", "venv"),
    [
        (".venv/bin/python", ".venv"),
        ("./envs/a/bin/python3.11", "envs/a"),
        ("/srv/x/.venv/bin/python", "/srv/x/.venv"),
        ("python3", None),
        ("../other/bin/python", None),
    ],
)
def test_a_venv_is_made_in_the_working_directory_only(python: str, venv: Optional[str]) -> None:
    assert venv_of(host(Path("/srv/x"), python)) == venv


def test_a_host_gets_what_a_task_imports_and_nothing_that_was_built(here: Path) -> None:
    assert sorted(code_files(here, "requirements.lock")) == CODE


def test_of_a_checkout_hidden_files_stay_here_unless_they_are_named(here: Path) -> None:
    (here / "cifar10" / ".env").touch()
    (here / "cifar10" / ".idea").mkdir()
    (here / "cifar10" / ".idea" / "a.py").touch()
    (here / ".mine.txt").touch()
    assert sorted(code_files(here, ".mine.txt")) == [".mine.txt", *CODE]


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
        assert f"{name}: records: 2 files copied\n" in output


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
        transport = transport(f"echo >> {begun}; exec sleep 600")

    begun.touch()
    monkeypatch.setattr(verb, "backend_named", lambda name: Silent())
    names = ",".join(f"node{i}" for i in range(16))
    cluster = from_hosts(names, python="python3", workdir=str(tmp_path / "there"))
    with signals_once(lambda: begun.read_text() == "\n" * 16, signal.SIGTERM) as told:
        assert verb.setup(cluster, options()) == 143
    assert time.monotonic() - told[0] < 60.0
    assert capsys.readouterr().out.endswith("stopped; the same command goes on where it was\n")
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


def test_other_backends_are_told_what_to_do_instead(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup", "--on", "slurm"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "error: setup prepares hosts of --on ssh, not of slurm: its nodes share"
    )
    assert error.count("\n") == 1


def test_a_folder_that_is_no_checkout_is_named_with_the_way_of_an_installed_package(
    tmp_path: Path,
) -> None:
    with pytest.raises(LaunchError) as refused:
        code_files(tmp_path, "requirements.lock")
    assert str(refused.value) == (
        f"a checkout is copied to the hosts, but {tmp_path} has no cifar10_main.py; run the "
        "launcher in a checkout, or install the same package on the hosts"
    )


def test_a_requirements_file_that_is_not_there_is_refused(here: Path) -> None:
    with pytest.raises(LaunchError, match="--requirements must be a file in"):
        code_files(here, "no.lock")
