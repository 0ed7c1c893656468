"""Hosts that do not answer, and a signal meanwhile; and what hosts say reaches no terminal."""

import signal
from pathlib import Path

import pytest

from launch.verbs import cli
from tests.launch.launcher import has_ended, put_script, signals_once, wait_for

SILENT = "echo $$ >> {begun}; exec sleep 300"


class Ssh:
    """A script in the place of ssh, whose processes write their ids into a file."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
        self._begun = folder / "begun"
        self._begun.touch()
        put_script(folder / "ssh", script.format(begun=self._begun))
        monkeypatch.setenv("PATH", str(folder), prepend=":")

    def pids(self) -> list[str]:
        return self._begun.read_text().split()

    def assert_ended(self) -> None:
        wait_for(lambda: all(map(has_ended, self.pids())), "the end of all", 10)


def test_a_signal_ends_check_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ssh = Ssh(tmp_path, monkeypatch, SILENT)
    with (
        signals_once(lambda: len(ssh.pids()) == 2, signal.SIGTERM),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main(["check", "--hosts", "node0,node1"])
    assert ended.value.code == 143
    assert capfd.readouterr() == ("", "")  # after 30 s, it would name the hosts
    ssh.assert_ended()


def test_escape_codes_of_a_host_reach_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    Ssh(tmp_path, monkeypatch, "printf 'a\\033[2Jb\\n' >&2; exit 255")
    assert cli.main(["check", "--hosts", "node1"]) == 1
    assert "problem: node1: a[2Jb (ssh exit code 255)" in capfd.readouterr().out
