"""One task: what it is given of its host, and how it is signalled."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from launch.agent.task_process import Running, part


@pytest.mark.parametrize(
    ("items", "parts"),
    [
        ([0, 1, 2, 3], [[0], [1], [2, 3]]),
        ([0, 1, 2, 3, 4, 5], [[0, 1], [2, 3], [4, 5]]),
        ([0, 1], [[0], [1], [0]]),
        ([], [[], [], []]),
    ],
)
def test_parts_are_equal_and_never_empty(items: list[int], parts: list[list[int]]) -> None:
    assert [part(items, (i, 3)) for i in range(3)] == parts


def _order(tmp_path: Path, code: str, **more: Any) -> dict[str, Any]:
    """What the launcher sends to have a task started: Python that runs `code`."""
    return {
        "task": "worker/0",
        "argv": [sys.executable, "-c", code],
        "script": None,
        "cwd": "/",
        "env": {},
        "gpus": None,
        "share": None,
        "port": None,
        "log": str(tmp_path / "log"),
        "masked": [],
        "last": False,
        **more,
    }


@pytest.mark.parametrize(
    ("share", "env", "told"),
    [
        (None, {}, "None"),
        ([0, 2], {}, "1"),
        ([0, 2], {"CIFAR10_OWN_CORES": "0"}, "0"),  # The user's word counts.
    ],
)
def test_a_task_with_a_share_of_the_cores_is_told_that_they_are_its_own(
    tmp_path: Path, share: Any, env: dict[str, str], told: str
) -> None:
    code = "import os; print(os.environ.get('CIFAR10_OWN_CORES'))"
    task = Running(_order(tmp_path, code, share=share, env=env))
    os.waitpid(task.pid, 0)
    assert [*(task.read() or []), *task.finish(0)] == [told]


def _ends_by(tmp_path: Path, code: str, *, contained: bool) -> int:
    """Sends SIGTERM to a task once it has had the time to write; what it ended by."""
    code = f"import time; {code}; time.sleep(60)"
    task = Running(_order(tmp_path, code, contained=contained))
    deadline = time.monotonic() + 20
    while "print" in code and time.monotonic() < deadline and not task.read():
        time.sleep(0.01)
    task.send(signal.SIGTERM)
    ended = os.waitstatus_to_exitcode(os.waitpid(task.pid, 0)[1])
    task.finish(ended)
    return ended


def test_a_container_that_has_not_begun_is_not_asked_to_end(tmp_path: Path) -> None:
    assert _ends_by(tmp_path, "pass", contained=True) == -signal.SIGKILL
    assert _ends_by(tmp_path, "print('here', flush=True)", contained=True) == -signal.SIGTERM
    assert _ends_by(tmp_path, "pass", contained=False) == -signal.SIGTERM
