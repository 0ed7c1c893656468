"""What a check finds out about a host."""

import errno
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from launch.agent import host_facts
from launch.agent.messages import read_event
from launch.agent.protocol import encode


def look(python: str, folder: Path) -> dict[str, Any]:
    order = {"cwd": str(folder), "python": python, "code": ["main.py"], "data": None, "ports": []}
    return host_facts.look({**order, "engine": None})


def test_a_python_says_its_version_and_tensorflows(tmp_path: Path) -> None:
    facts = look(sys.executable, tmp_path)
    assert facts["python_error"] is None
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))


def test_tensorflow_may_be_the_package_without_gpus(
    tmp_path: Path, python_with_tensorflow_cpu: str
) -> None:
    facts = look(python_with_tensorflow_cpu, tmp_path)
    assert facts["tensorflow"] == "2.15.1"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo first >&2; echo 'libpython is missing' >&2; exit 127", "libpython is missing"),
        ("exit 3", "exit code 3"),
    ],
)
def test_a_python_that_fails_is_quoted_by_its_last_line(
    tmp_path: Path, script: str, why: str
) -> None:
    broken = tmp_path / "python"
    broken.write_text(f"#!/bin/sh\n{script}\n")
    broken.chmod(0o755)
    facts = look(str(broken), tmp_path)
    assert facts["python"] is None
    assert facts["python_error"] == f"{broken}: {why}"


def test_a_python_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_facts, "_VERSIONS_SECS", 0.2)
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 20\n")
    slow.chmod(0o755)
    assert look(str(slow), tmp_path)["python_error"] == f"{slow}: no answer within 0.2 s"


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert look("/nowhere/python", tmp_path)["python_error"] == "/nowhere/python does not exist"


def test_without_the_folder_a_python_is_asked_all_the_same(tmp_path: Path) -> None:
    facts = look(sys.executable, tmp_path / "no")
    assert facts["has_workdir"] is False
    assert facts["python_error"] is None
    assert look(sys.executable, tmp_path)["has_workdir"] is True


def test_odd_files_among_the_code_and_the_records_hinder_no_check(tmp_path: Path) -> None:
    (tmp_path / "main.py").touch()
    data = tmp_path / "data"
    data.mkdir()

    def found() -> tuple[Any, Any]:
        order = {"cwd": str(tmp_path), "python": sys.executable, "code": ["main.py", "data"]}
        facts = host_facts.look({**order, "engine": None, "data": "data", "ports": []})
        return facts["code"], facts["data"]

    (data / "train.tfrecords").touch()
    code, records = found()
    (data / ".#a.py").symlink_to("ann@desk.1234:5678")  # an editor's lock
    os.mkfifo(data / "b.py")
    assert found() == (code, records)
    (data / "c.py").symlink_to("/proc/self/mem")  # cannot be read
    assert found()[0] not in (code, None)
    (data / os.fsdecode(b"caf\xe9.py")).touch()
    (data / os.fsdecode(b"caf\xe9.tfrecords")).touch()
    assert None not in found()
    assert found()[1] != records


def test_every_fact_reaches_the_launcher(tmp_path: Path) -> None:
    facts = look(sys.executable, tmp_path)
    assert "public" in facts
    message = {"event": "looked", **facts}
    assert read_event(encode(message)) == message


class NeverAccepts:
    """A listening socket of a process that has no file descriptors left."""

    def __init__(self) -> None:
        self.tries = 0

    def fileno(self) -> int:
        return 3 if self.tries < 3 else -1

    def accept(self) -> None:
        self.tries += 1
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_caller_that_cannot_be_accepted_is_no_reason_to_try_without_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    listening: Any = NeverAccepts()
    host_facts._tell(listening, "token")
    assert pauses == [host_facts._PAUSE_SECS] * 3
