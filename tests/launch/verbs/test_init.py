"""The cluster file that `init` writes, and the questions that it asks."""

import dataclasses
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest

from launch.backends.registry import KINDS
from launch.cluster.cluster_file import read_cluster
from launch.cluster.model import Cluster, Host, Limits
from launch.verbs.cli import main
from testbeds.process_list import wait_until_asleep
from tests.launch.launcher import ROOT

FLAGS = {
    "ssh": ("--hosts", "alice@node0,node1"),
    "docker": ("--on", "docker", "--hosts", "node0,node1"),
    "local": ("--on", "local", "--workers", "2"),
    "slurm": ("--on", "slurm", "--workers", "2"),
    "kubernetes": ("--on", "kubernetes"),
}


def write(folder: Path, *flags: str) -> str:
    path = folder / "cluster.yaml"
    assert main(["init", *flags, "--out", str(path), "--force"]) == 0
    return path.read_text()


def read(folder: Path) -> Cluster:
    return read_cluster(str(folder / "cluster.yaml"), KINDS)


def roles(cluster: Cluster) -> list[dict[str, int]]:
    return [dict(host.roles) for host in cluster.hosts]


@pytest.mark.parametrize("kind", FLAGS)
def test_the_parser_reads_the_file_and_finds_what_was_asked_for(tmp_path: Path, kind: str) -> None:
    write(tmp_path, *FLAGS[kind])
    cluster = read(tmp_path)
    assert cluster.backend == kind
    assert cluster.count("master") == 1
    assert cluster.ports == KINDS[kind].default_ports


def test_each_host_has_a_trainer_and_the_ps_are_dealt_out(tmp_path: Path) -> None:
    write(tmp_path, "--hosts", "alice@a,b,c", "--ps", "4", "--evaluator", "--workdir", "/srv/x")
    cluster = read(tmp_path)
    assert roles(cluster) == [
        {"chief": 1, "ps": 2}, {"worker": 1, "ps": 1}, {"worker": 1, "ps": 1, "evaluator": 1}
    ]  # fmt: skip
    first = cluster.hosts[0]
    assert (first.name, first.user) == ("a", "alice")
    assert (first.workdir, first.python) == ("/srv/x", ".venv/bin/python")


@pytest.mark.parametrize("kind", FLAGS)
def test_a_comment_explains_every_line(tmp_path: Path, kind: str) -> None:
    lines = write(tmp_path, *FLAGS[kind]).split("\n\n", 1)[1].splitlines()
    assert len(lines) > 10
    for line in lines:
        assert re.fullmatch(r"(# )? *(- )?\w+:.*  # [^#]{4,}", line), line
        assert len(line) <= 120


@pytest.mark.parametrize("kind", FLAGS)
def test_every_key_is_there_and_can_be_uncommented(tmp_path: Path, kind: str) -> None:
    head, _, body = write(tmp_path, *FLAGS[kind]).partition("\n\n")
    everything = "".join(f"{line.removeprefix('# ')}\n" for line in body.splitlines())
    (tmp_path / "cluster.yaml").write_text(everything)
    assert read(tmp_path).backend == kind
    settings = [Cluster, Limits, *filter(None, [KINDS[kind].settings])]
    if kind in ("ssh", "docker", "local"):
        settings.append(Host)
    keys = {
        field.metadata["name"] or field.name
        for one in settings
        for field in dataclasses.fields(one)
        if "rule" in field.metadata
    }
    unused = {"sync"} - ({"sync"} if kind == "ssh" else set())
    if kind in ("slurm", "kubernetes"):
        unused.add("ports")
    if kind == "docker":
        unused.add("python")  # the image's
    if kind == "local":
        unused.add("user")
    found = {match[1] for match in re.finditer(r"^ *(?:- )?(\w+):", everything, re.M)}
    assert keys - unused - found == set()


@pytest.mark.parametrize("place", ["/it's: here", "~/a b #1", "/x\\y", "/data/[a], {b}", "/é"])
def test_a_value_is_taken_as_it_is(tmp_path: Path, place: str) -> None:
    write(tmp_path, "--hosts", "a", "--workdir", place)
    assert read(tmp_path).hosts[0].workdir == place


def test_a_file_that_is_there_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text("mine")
    assert main(["init", "--hosts", "a"]) == 2
    ways = "name another file by --out, or replace it by --force"
    error = f"error: cluster.yaml is there already; {ways}\n"
    assert capsys.readouterr().err == error
    assert Path("cluster.yaml").read_text() == "mine"
    assert os.listdir() == ["cluster.yaml"]


def test_a_file_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "folder"
    place.mkdir()
    assert main(["init", "--hosts", "a", "--out", str(place), "--force"]) == 2
    error = f"error: {place}: is a folder; name another with --out\n"
    assert capsys.readouterr().err == error
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("through_a_link", [False, True])
def test_what_is_no_regular_file_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], through_a_link: bool
) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)  # as a device, which only root can make
    link.symlink_to("pipe")
    place = link if through_a_link else pipe
    assert main(["init", "--hosts", "a", "--out", str(place), "--force"]) == 2
    error = f"error: {place}: is no regular file; name another with --out\n"
    assert capsys.readouterr().err == error
    assert pipe.is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "lab.yaml").write_text("mine")
    (tmp_path / "cluster.yaml").symlink_to("real/lab.yaml")
    write(tmp_path, "--hosts", "a")
    assert (tmp_path / "cluster.yaml").is_symlink()
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["lab.yaml"]
    assert [host.name for host in read(tmp_path).hosts] == ["a"]


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ((), "init asks its questions on a terminal, and this is none; describe the cluster with"),
        (("--on", "docker"), "init asks its questions on a terminal, and this is none"),
        (("--hosts", "a b"), "--hosts 'a b' is not a host: it must be NAME or USER@NAME"),
        (("--hosts", "a,a"), "--hosts host a is listed twice"),
        (("--hosts", "a", "--workers", "2"), "--workers 2 does not go with --on ssh: each host af"),
        (("--on", "slurm", "--hosts", "a"), "--hosts a does not go with --on slurm: it has no lis"),
        (("--on", "kubernetes", "--python", "x"), "--python x does not go with --on kubernetes"),
        (
            ("--hosts", "a", "--workdir", "a\nb"),
            "--workdir must be a path on one line, in no other user's home (~name), got 'a\\nb",
        ),
        (
            ("--hosts", "a", "--workdir", "~eve/a"),
            "--workdir must be a path on one line, in no other user's home (~name), got '~eve/a'",
        ),
        (("--hosts", "a", "--", "x"), "init takes no training arguments after --"),
    ],
)
def test_flags_are_refused_as_the_parser_refuses_the_file(
    flags: tuple[str, ...],
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", *flags]) == 2
    assert capsys.readouterr().err.startswith(f"error: {error}")
    assert os.listdir() == []


class Terminal:
    """`init` on a terminal."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._main, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "launch", "init", *flags],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", "COLUMNS": "200"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            # The tests may be in the background, where Ctrl-C is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        os.close(theirs)
        self.seen = ""

    def answer(self, question: str, words: Optional[str]) -> str:
        """Waits for a question, and types an answer; returns what came before it."""
        while question not in self.seen:
            self.seen += os.read(self._main, 4096).decode()
        before, _, self.seen = self.seen.partition(question)
        if words is not None:
            os.write(self._main, f"{words}\n".encode())
        return before

    def end(self) -> str:
        """Waits for the end; returns what is left."""
        while True:
            try:
                data = os.read(self._main, 4096)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            self.seen += data.decode()
        os.close(self._main)
        self.process.wait()
        return self.seen


@pytest.mark.slow
def test_a_wrong_answer_is_refused_at_its_question(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.answer("where tasks run", "shh")
    assert "must be one of local, ssh" in terminal.answer("where tasks run", "")
    terminal.answer("hosts, as ssh knows them", "a,a")
    assert "host a is listed twice" in terminal.answer("hosts, as ssh knows them", "bob@a,b")
    terminal.answer("parameter servers (2)", "many")
    refusal = terminal.answer("parameter servers (2)", "1")
    assert "must be a whole number from 0 to 1000, got 'many'" in refusal
    terminal.answer("separate evaluator (y/n)", "y")
    terminal.answer("folder with the code on the hosts", "/srv/cifar10")
    terminal.answer("Python of the training (.venv/bin/python)", "")
    assert "cluster.yaml: written; next: python -m launch setup" in terminal.end()
    assert terminal.process.returncode == 0
    cluster = read(tmp_path)
    assert roles(cluster) == [{"chief": 1, "ps": 1}, {"worker": 1, "evaluator": 1}]
    assert cluster.hosts[0].user == "bob"
    assert {host.workdir for host in cluster.hosts} == {"/srv/cifar10"}


@pytest.mark.slow
@pytest.mark.parametrize("code", [130, 2])
def test_ctrl_c_and_the_end_of_input_write_nothing(tmp_path: Path, code: int) -> None:
    terminal = Terminal(tmp_path)
    terminal.answer("where tasks run", "\x04" if code == 2 else None)
    if code == 130:
        # Python notes a signal that comes just before it reads, and heeds it after the answer.
        wait_until_asleep(terminal.process.pid)
        terminal.process.send_signal(signal.SIGINT)
    said = terminal.end()
    assert terminal.process.returncode == code
    assert "Traceback" not in said
    assert os.listdir(tmp_path) == []
