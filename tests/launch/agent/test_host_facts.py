"""What a check finds out about a host: Python, code and records."""

import errno
import os
import sys
from pathlib import Path
from typing import Any, Optional

import pytest

from launch.agent import host_facts
from launch.agent.protocol import encode, read_event
from tests.launch.launcher import put_script


def probe(python: str, folder: Path, **order: Any) -> dict[str, Any]:
    usual = {"python": python, "code": ["main.py"], "data": None, "ports": [], "engine": None}
    return host_facts.probe({**usual, "cwd": str(folder), **order}, [])


def test_a_python_says_its_version_and_every_fact_reaches_the_launcher(tmp_path: Path) -> None:
    facts = probe(sys.executable, tmp_path)
    assert facts["python_error"] is None
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    message = {"event": "probed", **facts}
    assert read_event(encode(message)) == message
    assert probe(sys.executable, tmp_path / "no")["has_workdir"] is False


def test_tensorflow_may_be_the_package_without_gpus(
    tmp_path: Path, python_with_tensorflow_cpu: str
) -> None:
    assert probe(python_with_tensorflow_cpu, tmp_path)["tensorflow"] == "2.15.1"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo first >&2; echo 'libpython is missing' >&2; exit 127", "libpython is missing"),
        ("exit 3", "exit code 3"),
        ("exec sleep 20", "no answer within 0.2 s"),
        (None, "No such file or directory"),
    ],
)
def test_a_python_that_fails_is_quoted_by_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: Optional[str], why: str
) -> None:
    monkeypatch.setattr(host_facts, "_VERSIONS_SECS", 0.2 if why.endswith("0.2 s") else 60)
    broken = put_script(tmp_path / "python", text) if text else "/nowhere/python"
    facts = probe(str(broken), tmp_path)
    assert (facts["python"], facts["python_error"]) == (None, f"{broken}: {why}")


def test_odd_files_among_the_code_and_the_records_hinder_no_check(tmp_path: Path) -> None:
    (tmp_path / "main.py").touch()
    data = tmp_path / "data"
    data.mkdir()

    def found() -> tuple[Any, Any]:
        facts = probe("/nowhere/python", tmp_path, code=["main.py", "data"], data="data")
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


@pytest.mark.parametrize("denied", ["main.py", "other.py"])
def test_code_that_may_not_be_looked_at_hinders_no_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: str
) -> None:
    for name in ("main.py", "other.py"):
        (tmp_path / name).touch()
    stat = os.stat

    def deny(path: Any, **more: Any) -> os.stat_result:
        if str(path).endswith(denied):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", deny)
    found = probe("/nowhere/python", tmp_path, code=["main.py", "other.py"])
    assert (found["code"] is None) == (denied == "main.py")
