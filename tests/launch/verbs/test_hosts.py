"""Hosts that do not answer, and a signal meanwhile; and what hosts say reaches no terminal."""

import signal
from pathlib import Path

import pytest

from launch.verbs import cli
from tests.launch.launcher import has_ended, put_script, signals_once, wait_for


def test_a_signal_ends_check_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = tmp_path / "begun"
    begun.touch()
    put_script(tmp_path / "ssh", f"echo $$ >> {begun}; exec sleep 300")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with (
        signals_once(lambda: len(begun.read_text().split()) == 2, signal.SIGTERM),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main(["check", "--hosts", "node0,node1"])
    assert ended.value.code == 143
    assert capfd.readouterr() == ("", "")  # after 30 s, it would name the hosts
    wait_for(lambda: all(map(has_ended, begun.read_text().split())), "the end of all", 10)


def test_escape_codes_of_a_host_reach_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    put_script(tmp_path / "ssh", "printf 'a\\033[2Jb\\n' >&2; exit 255")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert cli.main(["check", "--hosts", "node1"]) == 1
    assert "problem: node1: a[2Jb (ssh exit code 255)" in capfd.readouterr().out
