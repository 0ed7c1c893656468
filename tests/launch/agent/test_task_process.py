"""One task: what it is given of its host, and how it is signalled."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from launch.agent.protocol import Message, encode
from launch.agent.task_process import TaskProcess, part
from tests.launch.launcher import wait_for


@pytest.mark.parametrize(
    ("items", "parts"), [([0, 1, 2, 3], [[0], [1], [2, 3]]), ([0, 1], [[0], [1], [0]])]
)
def test_parts_are_equal_and_never_empty(items: list[int], parts: list[list[int]]) -> None:
    assert [part(items, (i, 3)) for i in range(3)] == parts


def _order(code: str, **more: Any) -> dict[str, Any]:
    """What the launcher sends to have a task started: Python that runs `code`."""
    return {
        "task": "worker/0",
        "argv": [sys.executable, "-c", code],
        "cwd": "/",
        "env": {},
        "gpus": None,
        "share": None,
        "port": None,
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
    share: Any, env: dict[str, str], told: str
) -> None:
    code = "import os; print(os.environ.get('CIFAR10_OWN_CORES'), sorted(os.sched_getaffinity(0)))"
    cores = sorted(os.sched_getaffinity(0))
    lines = run_to_its_end(code, share=share, env=env)
    assert lines == [f"{told} {part(cores, share or (0, 1))}"]


def test_a_folder_that_is_missing_is_named_rather_than_the_python(tmp_path: Path) -> None:
    place = tmp_path / "no"
    with pytest.raises(OSError, match=f"^{place} does not exist; make it, or name another with --"):
        TaskProcess(_order("", cwd=str(place)), sent)


@pytest.mark.parametrize(
    "more", [{"env": {"A": "a\0b"}}, {"env": {"A": "secret\ud800"}, "masked": ["A"]}]
)
def test_what_no_process_can_be_given_is_the_tasks_failure(more: dict[str, Any]) -> None:
    with pytest.raises(OSError, match=f"^{sys.executable} cannot be run: .*(null|surrogates)"):
        TaskProcess(_order("", **more), sent)


def sent(message: Message, *, droppable: bool = False) -> bool:
    """Takes a message."""
    return True


def end_of(task: TaskProcess) -> int:
    wait_for(lambda: task.poll() is not None, "the end of the task")
    task.finish()
    code = task.poll()
    assert code is not None
    return code


def _ends_by(code: str, *, contained: bool) -> int:
    """Sends SIGTERM to a task once it has had the time to write; what it ended by."""
    lines: list[Message] = []

    def take(message: Message, *, droppable: bool) -> bool:
        lines.append(message)
        return True

    code = f"import time; {code}; time.sleep(60)"
    task = TaskProcess(_order(code, contained=contained), take)
    if "print" in code:
        wait_for(lambda: lines, "the line")
    task.send(signal.SIGTERM)
    return end_of(task)


def run_to_its_end(code: str, **more: Any) -> list[str]:
    """Runs Python code as a task; returns the lines for the launcher."""
    lines: list[str] = []

    def take(message: Message, *, droppable: bool) -> bool:
        lines.extend(message["lines"])
        return True

    task = TaskProcess(_order(code, **more), take)
    end_of(task)
    return lines


def test_of_lines_that_a_slow_launcher_does_not_take_the_last_come_with_the_end() -> None:
    taken: list[Message] = []

    def take(message: Message, *, droppable: bool = False) -> bool:
        taken.extend([] if droppable else [message])
        return not droppable

    end_of(TaskProcess(_order("for i in range(100): print(i, flush=True)"), take))
    lines = [str(i) for i in range(88, 100)]
    assert taken == [{"event": "lines", "task": "worker/0", "lines": lines, "dropped": 88}]


def test_a_long_line_comes_in_parts_up_to_a_limit_and_the_next_one_whole() -> None:
    code = "print('one'); print('x' * 5000); print('y' * 1_000_000); print('z' * 10, end='')"
    lines = run_to_its_end(code)
    assert lines == ["one", "x" * 4096, "x" * 904, *["y" * 4096] * 16, "z" * 10]


@pytest.mark.parametrize(("before", "shown"), [(0, True), (65_000, True), (65_530, False)])
def test_a_secret_is_masked_wherever_it_is_in_a_long_line(before: int, shown: bool) -> None:
    code = (
        "import os, sys, time\n"
        f"for part in ('x' * {before}, os.environ['TOKEN'], 'y' * 200_000):\n"
        "    sys.stdout.write(part)\n"
        "    sys.stdout.flush()\n"
        "    time.sleep(0.05)\n"
    )
    env = {"TOKEN": "hunter2-and-more"}
    line = "".join(run_to_its_end(code, env=env, masked=["TOKEN"]))
    assert line.startswith("x" * min(before, 65_520))
    assert set(line) <= set("x*y")
    assert ("*" in line) is shown


def test_each_line_of_a_secret_is_masked_and_the_longest_first() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADAN\nMIIEvQIBADANBgkq\nab==\n-----END KEY-----\n"
    settings = '{\r\n  "token": "hunter2",\r\n}'
    code = (
        "import os; print(os.environ['KEY'], end='', flush=True); "
        "os.write(1, os.environ['JSON'].encode()); print(); print('\\t\"token\": \"hunter2\",')"
    )
    env = {"KEY": key, "JSON": settings, "SPACES": "        "}
    lines = run_to_its_end(code, env=env, masked=["KEY", "JSON", "SPACES", "NONE"])
    assert lines == ["***", "***", "***", "ab==", "***", "{", "  ***", "}", "\t***"]


def test_a_child_that_writes_without_end_does_not_hold_up_the_end_of_its_task(
    tmp_path: Path,
) -> None:
    child = "import signal; signal.alarm(60)\nwhile True: print('more')"
    code = (
        "import subprocess, sys\n"
        f"process = subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(process.pid))\n"
    )
    task = TaskProcess(_order(code), sent)
    try:
        assert end_of(task) == 0  # although there is always more to read
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("text", ["\x01", "\n", "\N{ROCKET}"])
def test_messages_with_lines_are_shorter_than_what_a_launcher_reads(text: str) -> None:
    longest = [0]

    def take(message: Message, *, droppable: bool) -> bool:
        longest.append(len(encode(message)))
        return True

    code = f"import sys; sys.stdout.write(({text!r} * 60_000 + '\\n') * 9)"
    end_of(TaskProcess(_order(code), take))
    assert 0 < max(longest) < 1 << 20


def test_a_container_that_has_not_begun_is_not_asked_to_end() -> None:
    assert _ends_by("pass", contained=True) == -signal.SIGKILL
    assert _ends_by("print('here', flush=True)", contained=True) == -signal.SIGTERM
    assert _ends_by("pass", contained=False) == -signal.SIGTERM


def test_a_host_without_threads_fails_the_task_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(OSError, match="^its output cannot be read: can't start new thread"):
        TaskProcess(_order("import time; time.sleep(300)"), sent)
