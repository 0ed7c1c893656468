"""What kubectl writes in logs, over connections that end at any place."""

import queue
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launch.backends.kubernetes.kubectl import Kubectl
from launch.backends.kubernetes.logs import LONGEST_PART, PodLog, PodLogs
from launch.backends.kubernetes.state import Pod


def in_parts(data: bytes) -> Iterator[bytes]:
    """Yields data as the reader of a connection does."""
    while data:
        end = data.find(b"\n", 0, LONGEST_PART) + 1 or LONGEST_PART
        yield data[:end]
        data = data[end:]


def taken(log: PodLog, data: bytes) -> list[str]:
    """Returns the new lines of a connection that delivers `data` and ends."""
    return list(log.new_lines(in_parts(data)))


def lines(*texts: str) -> bytes:
    """Makes a log of lines `SECONDS TEXT`, of the first minute of a day."""
    return "".join(f"2026-01-31T09:00:{text}\n" for text in texts).encode()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 12), st.lists(st.integers(1, 600), max_size=4))
def test_each_line_comes_once_wherever_connections_break(count: int, cuts: list[int]) -> None:
    stamps = [f"2026-01-31T09:00:0{i // 3}.{i % 3}Z" for i in range(count)]
    data = b"".join(f"{stamp} line {i}\n".encode() for i, stamp in enumerate(stamps))
    log = PodLog(pod("1"))
    found = [text for end in [*cuts, len(data)] for text in taken(log, data[:end])]
    assert found == [f"line {i}" for i in range(count)]


def test_a_clock_that_is_set_back_during_a_connection_loses_no_lines() -> None:
    assert taken(PodLog(pod("1")), lines("40Z a", "05Z b", "06Z c")) == ["a", "b", "c"]


def test_a_long_line_comes_in_parts_of_a_limited_size() -> None:
    words = "".join(str(i % 10) for i in range(3 * LONGEST_PART))
    found = taken(PodLog(pod("1")), lines("01Z a", f"02Z {words}", "03Z b"))
    assert (found[0], "".join(found[1:-1]), found[-1]) == ("a", words, "b")
    assert max(map(len, found)) <= LONGEST_PART


class Logs:
    """The logs of pods, with other commands in place of `kubectl logs`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *script: str) -> None:
        kubectl = Kubectl(None, None)
        self.commands: list[tuple[str, ...]] = []
        self.lines: list[str] = []

        def command(*words: str) -> list[str]:
            self.commands.append(words)
            return ["bash", "-c", script[min(len(self.commands), len(script)) - 1]]

        monkeypatch.setattr(kubectl, "command", command)
        self._events: queue.Queue[Any] = queue.Queue()
        self.logs = PodLogs(kubectl, self._events.put, lambda _, line: self.lines.append(line))

    def poll(self, *pods: Pod) -> list[str]:
        """Takes a poll, waits for the ends of the connections, and returns the new lines."""
        self.lines = []
        self.logs.read(pods)
        while any(log.process is not None for log in self.logs._logs.values()):
            self._events.get(timeout=30)()
        return self.lines


def pod(uid: str, state: str = "running") -> Pod:
    code = 0 if state == "ended" else None
    return Pod("worker/0", "cifar10-worker-0", uid, "node-a", state, code)


def test_a_log_without_a_thread_is_opened_again_at_the_next_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Logs(monkeypatch, "exec sleep 60", AHEAD)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start")))
        assert found.poll(pod("1")) == []
    assert found.poll(pod("1")) == ["a"]


AHEAD = "printf '2026-01-31T10:00:00Z a\\n'"
BEHIND = "printf '2026-01-31T09:00:00Z b\\n'"


def test_a_pod_that_follows_another_is_read_from_its_first_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clocks of their nodes, and that of the API server, do not matter."""
    found = Logs(monkeypatch, AHEAD, BEHIND)
    assert found.poll(pod("1")) == ["a"]
    assert found.poll(pod("2")) == ["b"]
    assert not any("--since-time" in word for word in found.commands[1])


def test_a_log_that_broke_at_the_end_of_its_pod_is_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rest = "printf '2026-01-31T11:00:00Z b'"
    found = Logs(monkeypatch, f"{AHEAD}; exit 1", f"{AHEAD}; exit 1", f"{AHEAD}; {rest}")
    assert found.poll(pod("1")) == ["a"]
    assert found.poll(pod("1", "ended")) == []
    assert not found.logs.are_complete
    assert found.poll(pod("1", "ended")) == ["b"]
    assert found.logs.are_complete
    assert found.commands[2][-1] == "--since-time=2026-01-31T10:00:00Z"
    found.poll(pod("1", "ended"))
    assert len(found.commands) == 3


def test_a_pod_that_is_gone_or_evicted_has_no_log_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Logs(monkeypatch, "exit 1")
    found.poll(pod("1"))
    found.poll(Pod("worker/0", "cifar10-worker-0", "1", "node-a", "ended"))
    assert found.logs.are_complete
    found.poll(pod("2", "ended"))
    assert not found.logs.are_complete
    found.poll()
    assert found.logs.are_complete
