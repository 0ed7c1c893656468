"""Preparing hosts: the real scripts for hosts, in a shell here instead of over ssh."""

import argparse
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from launch.backends.base import Backend
from launch.cluster.host_list import from_hosts
from launch.cluster.model import Cluster, Host
from launch.connect import preparing
from launch.connect.link import Transport
from launch.errors import LaunchError
from launch.verbs import setup as verb
from launch.verbs.cli import main
from tests.launch.launcher import has_ended, put_script, signals_once, wait_for

pytestmark = pytest.mark.slow


def transport(before: str = "") -> Transport:
    """Runs the program here, after shell commands such as those of a login shell."""

    def command(host: Host, words: Sequence[str], line: str, lease_secs: float) -> list[str]:
        return ["sh", "-c", f"{before}\n{line}"]

    def explain(host: Host, code: int, errors: str) -> str:
        return f"exit code {code}: {errors}"

    return Transport(command, explain)


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


def test_thousands_of_records_are_copied_and_found(here: Path, tmp_path: Path) -> None:
    for number in range(2000):
        (here / "data" / f"it's {number:04}.tfrecords").write_bytes(b"%d" % number)
    assert Run(tmp_path / "there", here).success()[1] == "records: 2002 files copied"
    assert Run(tmp_path / "there", here).success()[1] == "records: are there"


def write_records(folder: Path, content: bytes) -> None:
    folder.mkdir()
    (folder / "train.tfrecords").write_bytes(content * 1000)
    digest = hashlib.sha256(content * 1000).hexdigest()
    files = [{"name": "train.tfrecords", "sha256": digest}]
    (folder / "manifest.json").write_text(json.dumps({"splits": {"train": {"files": files}}}))


CODE = ["cifar10/model.py", "cifar10/run.sh", "cifar10_main.py", "requirements.lock"]


def host(there: Path, python: str = "python3", name: str = "node1") -> Host:
    return Host(name, name, (("master", 1),), workdir=str(there), python=python)


class Run:
    """One run on one host: the code, the records that are here, and a further step."""

    def __init__(
        self, there: Path, here: Path, folder: str = "data", before: str = "", *more: preparing.Step
    ) -> None:
        self.lines: list[str] = []
        self._host, self._here, self._folder = host(there), here, folder
        self._before, self._more = before, more

    def go(self) -> dict[str, str]:
        """Returns the reasons of hosts that failed."""
        steps = [preparing.code_step(preparing.code_files(self._here, "requirements.lock"))]
        if found := preparing.records(self._here / "data"):
            steps.append(preparing.records_step(found, self._folder))
        return preparing.prepare(
            [self._host],
            lambda host: [*steps, *self._more],
            transport(self._before),
            lambda name, words: self.lines.append(words),
            [],
        )

    def success(self) -> list[str]:
        assert self.go() == {}
        return self.lines

    def failure(self) -> str:
        return self.go()["node1"]


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Returns the files of a folder: path -> (time of its last change, content)."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".setup.lock"
    }


def test_a_bare_host_gets_what_it_needs_and_the_second_time_no_records(
    here: Path, tmp_path: Path
) -> None:
    there = tmp_path / "it's; $(there)"
    lines = Run(there, here, "data", "", preparing.kernels_step("python3")).success()
    assert lines[:2] == ["code: 4 files copied", "records: 2 files copied"]
    assert "No module named 'cifar10.kernels'" in lines[2]
    assert lines[2].startswith("kernels: left out: ")
    assert lines[2].endswith("; training takes longer without")
    assert sorted(state(there)) == sorted([*CODE, "data/manifest.json", "data/train.tfrecords"])
    assert os.access(there / "cifar10" / "run.sh", os.X_OK)
    before = state(there)
    assert Run(there, here).success() == ["code: 4 files copied", "records: are there"]
    assert state(there) == before


def test_code_that_differs_is_mended_and_python_files_that_are_not_here_go(
    here: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    (there / "cifar10" / "old").mkdir(parents=True)
    (there / "cifar10" / "model.py").write_text("old")
    for name in ("cifar10/gone.py", "cifar10/old/a b.py", "cifar10/built.so", "mine.py"):
        (there / name).touch()
    shutil.rmtree(here / "data")
    Run(there, here).success()
    assert sorted(state(there)) == sorted([*CODE, "cifar10/built.so", "mine.py"])
    assert (there / "cifar10" / "model.py").read_text() == "x = 1\n"


def test_a_file_of_the_code_is_replaced_at_once(here: Path, tmp_path: Path) -> None:
    path = tmp_path / "there" / "cifar10" / "model.py"
    path.parent.mkdir(parents=True)
    path.touch()
    (here / "cifar10" / "model.py").write_bytes(b"\n" * (16 << 20))
    found: set[int] = set()
    thread = threading.Thread(target=Run(tmp_path / "there", here).go)
    thread.start()
    while thread.is_alive():
        found.add(path.stat().st_size)
    assert found == {0, 16 << 20}


def test_a_host_that_does_not_read_all_ends_without_a_word_of_the_tar_that_writes(
    here: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (here / "cifar10" / "model.py").write_bytes(b"\n" * (16 << 20))
    for code in (0, 255) * 5:
        before = f"printf '\\n{preparing.MARK}begun\\n'; exit {code}"
        assert len(Run(tmp_path / "there", here, "data", before).go()) == (code > 0)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("change", ["train.tfrecords", "other.tfrecords", "INCOMPLETE"])
def test_records_that_differ_or_are_marked_are_replaced(
    here: Path, tmp_path: Path, change: str
) -> None:
    there = tmp_path / "there"
    shutil.copytree(here / "data", there / "data")
    (there / "data" / change).write_bytes(b"else")
    assert Run(there, here).success()[1] == "records: 2 files copied"
    assert sorted(state(there / "data")) == ["manifest.json", "train.tfrecords"]
    assert (there / "data" / "train.tfrecords").read_bytes() == b"one" * 1000


@pytest.mark.parametrize("change", ["INCOMPLETE", "nothing"])
def test_an_incomplete_set_here_is_none(here: Path, change: str) -> None:
    if change == "INCOMPLETE":
        (here / "data" / change).touch()
    else:
        (here / "data" / "train.tfrecords").unlink()
    assert preparing.records(here / "data") == {}


def test_a_file_here_that_cannot_be_read_is_named_and_nothing_changes(
    here: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    step = preparing.code_step(preparing.code_files(here, "requirements.lock"))
    (here / "cifar10" / "model.py").unlink()
    there = host(tmp_path / "there")
    failed = preparing.prepare([there], lambda host: [step], transport(), lambda *words: None, [])
    words = "node1: code: files of the code could not be unpacked, or differ from what is here; "
    assert failed["node1"].startswith(words)
    assert "cifar10/model.py: " in capfd.readouterr().err
    assert not (tmp_path / "there" / "cifar10_main.py").exists()


@pytest.mark.parametrize(
    ("folder", "file"), [("", "cifar10/model.py"), ("data/", "train.tfrecords")]
)
def test_of_a_file_that_tar_fills_up_with_zeros_nothing_is_replaced(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, file: str
) -> None:
    there, zeros, tar = tmp_path / "there", tmp_path / "zeros", shutil.which("tar")
    old = there / folder / file
    old.parent.mkdir(parents=True)
    old.write_text("old")
    lines = [
        f'case "$*" in "-chf - "*{file}*) ;; *) exec {tar} "$@";; esac',
        f"cp -r $4 {zeros} && head -c 3000 /dev/zero >{zeros}/{file} && shift 4",
        f'{tar} -chf - -C {zeros} "$@"; exit 2',
    ]
    (tmp_path / "bin").mkdir()
    put_script(tmp_path / "bin" / "tar", "\n".join(lines))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    words = "could not be unpacked, or differ from what is here; nothing has changed"
    assert Run(there, here).failure().endswith(words)
    assert old.read_text() == "old"
    assert not (there / folder / "INCOMPLETE").exists()


@pytest.mark.parametrize("end", [0, 300, 1024, 1300, 2148])
def test_of_an_archive_that_is_cut_off_nothing_is_removed(
    end: int, here: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    (there / "cifar10").mkdir(parents=True)
    (there / "cifar10" / "old.py").touch()
    files = preparing.code_files(here)
    words = ["tar", "-chf", str(tmp_path / "tar"), "-C", str(here), "--", *files]
    subprocess.run(words, check=True)
    os.truncate(tmp_path / "tar", end)
    command = ["sh", "-c", preparing.code_step(files).line(host(there))]
    with (tmp_path / "tar").open("rb") as archive:
        done = subprocess.run(command, stdin=archive, capture_output=True, text=True)
    assert done.returncode == 1
    assert "code could not be unpacked, or differ from what is here; nothing has" in done.stdout
    assert (there / "cifar10" / "old.py").exists()


def test_the_end_of_the_launcher_ends_what_runs_on_the_host(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    lines = f"sleep 600 &\necho $$ $! > {pids}.part\nmv {pids}.part {pids}\nwait"
    step = preparing.kernels_step(str(put_script(tmp_path / "slow", lines)))
    command = ["sh", "-c", step.line(host(tmp_path / "there"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        wait_for(pids.exists, "the slow program")
        assert process.stdin is not None
        process.stdin.close()
        for pid in pids.read_text().split():
            wait_for(partial(has_ended, pid), f"the end of {pid}")


def test_of_hosts_that_share_a_folder_one_waits_and_finds_everything_there(
    here: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    run = Run(tmp_path / "own", here, str(folder))
    hold, pipe = ["flock", ".setup.lock", "-c", "echo; read line"], subprocess.PIPE
    with subprocess.Popen(hold, cwd=folder, stdin=pipe, stdout=pipe) as first:
        assert first.stdout is not None
        first.stdout.readline()
        thread = threading.Thread(target=run.go)
        thread.start()
        wait_for(lambda: len(run.lines) > 1, "the line that it waits")
        assert run.lines[1] == f"records: waits for another setup in {folder}"
        assert [path.name for path in folder.iterdir()] == [".setup.lock"]
        shutil.copytree(here / "data", folder, dirs_exist_ok=True)
        first.communicate()
    thread.join()
    assert run.lines[2:] == ["records: are there"]


def test_a_venv_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    makes = "mkdir -p .venv/bin; ln -sf $0 .venv/bin/python; [ $2 = venv ]"
    lines = f"case $1 in -c) ;; *) {makes} || {{ echo 'No space left'; exit 1; }};; esac"
    put_script(tmp_path / "bin" / "python3.11", lines)
    values = {"venv": ".venv", "lock": "requirements.lock", "agent_python": "python3"}
    step = preparing.Step("venv", values)
    there, say = host(tmp_path / "there"), lambda *words: None
    tell = transport(f"PATH={tmp_path}/bin:$PATH")
    reason = preparing.prepare([there], lambda host: [step], tell, say, [])["node1"]
    assert reason == "node1: venv: pip ended with exit code 1\n    No space left"


def test_a_host_gets_what_a_task_imports_and_nothing_that_was_built(here: Path) -> None:
    (here / "cifar10" / ".notes.py").touch()
    (here / "cifar10" / ".cache").mkdir()
    (here / "cifar10" / ".cache" / "one.py").touch()
    assert sorted(preparing.code_files(here, "requirements.lock")) == CODE
    (here / ".gpu.txt").touch()  # A hidden file comes if it is named.
    (here / "own.py").touch()
    assert sorted(preparing.code_files(here, ".gpu.txt", "own.py")) == sorted(
        [".gpu.txt", "own.py", *CODE]
    )


def test_files_that_are_not_in_the_checkout_are_refused(here: Path) -> None:
    with pytest.raises(LaunchError, match="^--requirements must be a file in .*, got 'gpu.lock'$"):
        preparing.code_files(here, "gpu.lock")
    (here / "own.py").touch()
    with pytest.raises(LaunchError, match="^--program must be a file in .*, got '/.*/own.py'$"):
        preparing.code_files(here, None, f"{here}/own.py")


class Here(Backend):
    """The ssh backend, but on this machine."""

    transport = transport()


def options(**given: Any) -> argparse.Namespace:
    found = argparse.Namespace(arguments=[], requirements="requirements.lock")
    found.cluster, found.python, found.on = "lab.yaml", None, None
    vars(found).update(given)
    return found


@pytest.fixture
def checked(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts of the jobs that were checked."""
    found: list[str] = []

    def check(job: Any) -> int:
        found.extend(host.name for host in job.cluster.hosts)
        return 7

    monkeypatch.chdir(here)
    monkeypatch.setattr(verb, "check_job", check)
    monkeypatch.setattr(verb, "BACKENDS", {"ssh": Here()})
    return found


def of_two(tmp_path: Path) -> Cluster:
    cluster = from_hosts("node1,node2", python="python3", workdir="x")
    hosts = [dataclasses.replace(host, workdir=str(tmp_path / host.name)) for host in cluster.hosts]
    return dataclasses.replace(cluster, hosts=tuple(hosts))


def test_all_hosts_are_prepared_and_the_exit_code_is_that_of_the_check(
    checked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verb.setup_hosts(of_two(tmp_path), options()) == 7
    assert checked == ["node1", "node2"]
    output = capsys.readouterr().out
    for name in checked:
        assert (tmp_path / name / "data" / "manifest.json").exists()
        assert f"{name}: records: 2 files copied\n" in output


def test_a_host_that_fails_is_named_and_the_others_are_finished(
    checked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node1").touch()
    assert verb.setup_hosts(of_two(tmp_path), options()) == 1
    output = capsys.readouterr().out
    assert f"problem: node1: code: {tmp_path}/node1 cannot be used" in output
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

    class Silent(Backend):
        transport = transport(f"echo >> {begun}; exec sleep 600")

    begun.touch()
    monkeypatch.setattr(verb, "BACKENDS", {"ssh": Silent()})
    names = ",".join(f"node{i}" for i in range(8))
    cluster = from_hosts(names, python="python3", workdir=str(tmp_path / "there"))
    with signals_once(lambda: begun.read_text() == "\n" * 8, signal.SIGTERM) as told:
        assert verb.setup_hosts(cluster, options()) == 143
    assert time.monotonic() - told[0] < 60.0
    assert capsys.readouterr().out.endswith("stopped; the same command goes on where it was\n")
    assert checked == []


def test_hosts_without_a_file_get_a_venv_and_the_other_commands_are_told_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared: list[str] = []

    def prepare_all(cluster: Cluster, _: argparse.Namespace) -> int:
        prepared.append(cluster.hosts[0].python)
        return 7

    monkeypatch.setattr(verb, "setup_hosts", prepare_all)
    monkeypatch.setattr(verb, "cluster_of", lambda given: from_hosts("node1", python=given.python))
    words = "the other commands need it, too: --python .venv/bin/python\n"
    for default, is_told in (("python3", True), (".venv/bin/python", False)):
        monkeypatch.setattr(verb, "default_python", lambda default=default: default)
        assert verb.setup(options(cluster=None)) == 7
        assert capsys.readouterr().out.endswith(words) == is_told
    assert verb.setup(options(cluster=None, python="python3.11")) == 7
    assert prepared == [".venv/bin/python", ".venv/bin/python", "python3.11"]


def test_other_backends_are_told_what_to_do_instead(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup", "--on", "slurm"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "error: setup prepares hosts of --on ssh, not of slurm; `make venv` prepares"
    )
    assert error.count("\n") == 1


def test_a_folder_that_is_no_checkout_is_named_with_the_way_of_an_installed_package(
    tmp_path: Path,
) -> None:
    with pytest.raises(LaunchError) as refused:
        preparing.code_files(tmp_path, "requirements.lock")
    assert str(refused.value) == (
        f"a checkout is copied to the hosts, but {tmp_path} has no cifar10_main.py; run the "
        "launcher in a checkout, or install the same package on the hosts"
    )
