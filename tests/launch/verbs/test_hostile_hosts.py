"""Hosts that send anything but messages of an agent: one clear line, and no more memory."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch.agent import host_facts
from tests.launch.launcher import ROOT, Launcher, interrupt, wait_for

pytestmark = pytest.mark.system

_GREETING = 'printf "launch-agent 1\\n"; printf \'{"event":"hello"}\\n\'; '
_QUESTIONS = {"python": "python3", "code": ["main.py"], "data": None, "ports": [], "engine": None}
_MEGABYTES = 100  # that a launcher may need; about 30 are its modules


def be_ssh(folder: Path, launcher: Launcher, script: str) -> None:
    """Puts a shell script in the place of ssh."""
    folder.mkdir()
    (folder / "ssh").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "ssh").chmod(0o755)
    launcher.env["PATH"] = f"{folder}:{os.environ['PATH']}"


# A process that was forked counts the memory of the process that forked it, and pytest needs much.
_MEASURE = """
import os, subprocess, sys

process = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(process.pid, 0)
with open(sys.argv[1], "w") as file:
    file.write(str(usage.ru_maxrss / 1024))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run(launcher: Launcher, *words: str) -> tuple[int, str, float]:
    """Runs a command of the launcher; returns its exit code, its output and its peak of memory.

    The peak is in megabytes, of the launcher alone.
    """
    peak = launcher.workdir.parent / "peak"
    command = [sys.executable, "-c", _MEASURE, str(peak), sys.executable, "-m", "launch", *words]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=launcher.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, float(peak.read_text())


def up(launcher: Launcher) -> tuple[int, str, float]:
    cluster = launcher.state.parent / "hosts.yaml"
    cluster.write_text("hosts: [{name: node1, roles: {master: 1}}]\nports: 2222\n")
    words = ["--state-dir", str(launcher.state), "--no-check", "--cluster", str(cluster)]
    return run(launcher, "up", *words)


def test_what_is_no_message_ends_the_job_with_one_clear_line(
    launcher: Launcher, tmp_path: Path
) -> None:
    sent = '{"event":"exit","task":"master/0","code":1}'
    be_ssh(tmp_path / "bin", launcher, f"{_GREETING} read order; echo '{sent}'; exec sleep 300")
    code, output, _ = up(launcher)
    assert (code, "Traceback" in output) == (1, False), output
    words = f"lost: it sent what is no message of an agent: {(sent[:59] + chr(10)).encode()!r}"
    assert output.splitlines()[-1].startswith(
        f"exit code 1: master/0 on node1 failed: {words[:80]}"
    )


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("tr '\\0' x </dev/zero", "it printed more than 1 MiB instead of starting an agent: b'xxx"),
        (
            f'{_GREETING} printf \'{{"event":"note","text":"\'; tr \'\\0\' x </dev/zero',
            'it sent what is no message of an agent: b\'{"event":"note","text":"xxx',
        ),
    ],
    ids=["before the greeting", "in a message"],
)
def test_endless_bytes_without_a_newline_need_no_memory(
    script: str, words: str, launcher: Launcher, tmp_path: Path
) -> None:
    be_ssh(tmp_path / "bin", launcher, script)
    code, output, megabytes = run(launcher, "check", "--hosts", "node1")
    assert (code, "Traceback" in output) == (1, False), output[:2000]
    assert f"problem: node1: {words}" in output
    assert len(output) < 10_000
    assert megabytes < _MEGABYTES


def test_a_host_that_names_no_ports_does_not_delay_a_stop(
    launcher: Launcher, tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    wait = f'grep -m 1 \'"do":"ports"\' >/dev/null && touch {asked}; cat >/dev/null'
    be_ssh(tmp_path / "bin", launcher, f"{_GREETING} {wait}")
    cluster = tmp_path / "hosts.yaml"
    cluster.write_text("hosts: [{name: node1, roles: {master: 1}}]\nports: free\n")
    process = launcher.start_up(("--cluster", str(cluster)), "--no-check", "--")
    wait_for(asked.exists, "the question for ports")
    output = interrupt(process)
    assert output.splitlines()[-1] == "exit code 130: stopped before the start"
    assert process.returncode == 130


def test_escape_codes_of_a_host_reach_no_terminal(launcher: Launcher, tmp_path: Path) -> None:
    be_ssh(tmp_path / "bin", launcher, "printf 'a\\033[2Jb\\n' >&2; exit 255")
    _, output, _ = run(launcher, "check", "--hosts", "node1")
    assert "problem: node1: a[2Jb (ssh exit code 255)" in output


def test_escape_codes_in_an_address_reach_no_terminal(launcher: Launcher, tmp_path: Path) -> None:
    facts = host_facts.look({**_QUESTIONS, "cwd": str(tmp_path)})
    answers = (
        {"event": "looked", **facts, "public": ["\x1b[2J8.8.4.4"]},
        {"event": "listening"},
        {"event": "dialled", "failures": []},
    )
    lines = " ".join(shlex.quote(json.dumps(answer)) for answer in answers)
    be_ssh(tmp_path / "bin", launcher, f"{_GREETING} printf '%s\\n' {lines}; cat >/dev/null")
    _, output, _ = run(launcher, "up", "--hosts", "node1,node2")
    assert "warning: node1: [2J8.8.4.4 may be reached from the internet" in output
