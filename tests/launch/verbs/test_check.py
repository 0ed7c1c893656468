"""`check`, and the check before `up`, while a host does not answer."""

import os
import signal
from pathlib import Path

import pytest

from tests.launch.launcher import Launcher, interrupt, wait_for


@pytest.mark.parametrize(("verb", "signum"), [("check", signal.SIGINT), ("up", signal.SIGTERM)])
def test_a_signal_closes_the_connections_at_once(
    launcher: Launcher, tmp_path: Path, verb: str, signum: signal.Signals
) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text(f"#!/bin/sh\necho $$ >> {begun}\nexec sleep 300\n")
    (tmp_path / "bin" / "ssh").chmod(0o755)
    launcher.env["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    process = launcher.start(verb, "--hosts", "node0,node1")
    wait_for(lambda: begun.exists() and begun.read_text().count("\n") == 2, "two connections")
    assert interrupt(process, signum) == ""  # after 30 s, it would name the hosts
    assert process.returncode == 128 + signum
    assert not [pid for pid in begun.read_text().split() if Path(f"/proc/{pid}").exists()]
