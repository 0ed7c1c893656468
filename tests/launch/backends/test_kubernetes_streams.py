"""What kubectl writes in watches and logs, over connections that end at any place."""

import json
import time
from collections.abc import Iterator
from typing import Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launch.backends.kubernetes.kubectl import Kubectl, UnreadableError
from launch.backends.kubernetes.log_place import LogPlace
from launch.backends.kubernetes.logs import PodLogs
from launch.backends.kubernetes.pods import Pod
from launch.backends.kubernetes.streams import (
    LONGEST_PART,
    LogPart,
    Stream,
    stamped_lines,
    watch_events,
)
from launch.backends.kubernetes.watches import Watch, pod_events, tfjob_events, warnings
from launch.errors import HostError
from tests.launch.launcher import wait_for


def in_parts(data: bytes) -> Iterator[bytes]:
    """Yields data as the reader of a stream does."""
    while data:
        end = data.find(b"\n", 0, LONGEST_PART) + 1 or LONGEST_PART
        yield data[:end]
        data = data[end:]


def test_lines_have_their_times_taken_off() -> None:
    data = b"2026-01-01T00:00:00.5Z step 1\n2026-01-01T00:00:01Z \n2026-01-01T00:00:02Z a"
    assert list(stamped_lines(in_parts(data))) == [
        LogPart("2026-01-01T00:00:00.5Z", b"step 1"),
        LogPart("2026-01-01T00:00:01Z", b""),
        LogPart("2026-01-01T00:00:02Z", b"a", is_cut=True),
    ]


@pytest.mark.parametrize("indent", [None, 4])
def test_watch_events_are_split(indent: Optional[int]) -> None:
    found = {"a": {"b": "}"}, "long": "x" * 3 * LONGEST_PART}
    events = [{"type": "ADDED", "object": found}, {"type": "DELETED", "object": {}}]
    text = "".join(json.dumps(e, indent=indent, separators=(",", ":")) + "\n" for e in events)
    assert list(watch_events(in_parts(text.encode()))) == [("ADDED", found), ("DELETED", {})]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"error: what\n", "kubectl get --watch printed 'error: what\\n', which is not JSON"),
        (b"[1]\n", "kubectl get --watch printed '[1]\\n', which is no event"),
        (b"{" + b" " * (1 << 23), "kubectl get --watch printed more than 4,194,304 bytes"),
    ],
    ids=lambda words: words[:40],  # one of them has 8 MiB
)
def test_a_watch_that_is_no_watch_is_named(data: bytes, words: str) -> None:
    with pytest.raises(UnreadableError) as raised:
        list(watch_events(in_parts(data)))
    assert words in str(raised.value)
    assert len(str(raised.value)) < 200


def test_an_object_that_cannot_be_read_leaves_the_others_readable() -> None:
    labels = {
        "training.kubeflow.org/replica-type": "ps",
        "training.kubeflow.org/replica-index": "0",
    }
    events: list[dict[str, Any]] = [
        {"type": "ADDED", "object": {"kind": "Status"}},
        {"type": "BOOKMARK", "object": {"kind": "Pod"}},
        {"type": "ADDED", "object": {"kind": "Pod", "metadata": {"labels": labels, "name": "x"}}},
        {"type": "ADDED", "object": {"kind": "Pod", "metadata": {"name": "other"}}},
    ]
    data = "".join(json.dumps(event) + "\n" for event in events).encode()
    assert list(pod_events(in_parts(data))) == [
        ("UNREADABLE", "kubectl get pods printed an object of the kind Status"),
        ("UNREADABLE", "kubectl get pods printed a pod without uid"),
        ("ADDED", None),
    ]
    assert list(tfjob_events(in_parts(b'{"type":"DELETED","object":{"kind":"Pod"}}\n'))) == [
        ("UNREADABLE", "kubectl get tfjobs printed an object of the kind Pod")
    ]


def test_warnings_about_other_jobs_are_left_out() -> None:
    events = [
        {"type": "ADDED", "object": {"involvedObject": {"name": name}, "message": "m"}}
        for name in ("job-1", "job-1-ps-0", "other")
    ]
    data = "".join(json.dumps(event) + "\n" for event in events).encode()
    assert [one.about for one in warnings("job-1")(in_parts(data))] == ["job-1", "job-1-ps-0"]


def test_a_line_without_end_comes_in_parts_of_a_limited_size() -> None:
    parts: list[Any] = []
    endless = "head -c 1000000 /dev/zero | tr '\\0' x"
    stream = Stream(["bash", "-c", endless], stamped_lines, lambda _, part: parts.append(part))
    wait_for(lambda: None in parts, "end of the output")
    stream.close()
    sizes = [len(part.stamp) + len(part.text) for part in parts[:-1]]
    assert sum(sizes) == 1_000_000
    assert max(sizes) <= LONGEST_PART


# The place in a log.


def taken(place: LogPlace, data: bytes) -> list[bytes]:
    """Returns the new lines of a connection that delivers `data` and ends."""
    place.resume()
    found = (place.take(part) for part in stamped_lines(in_parts(data)))
    return [text for text in found if text is not None]


def lines(*texts: str) -> bytes:
    """Makes a log of lines `SECONDS TEXT`, of the first minute of a day."""
    return "".join(f"2026-01-31T09:00:{text}\n" for text in texts).encode()


STAMPS = st.sampled_from([f"2026-01-31T09:00:0{i}.{j}Z" for i in range(4) for j in range(3)])


@settings(max_examples=50, deadline=None)
@given(st.lists(STAMPS, min_size=1, max_size=12), st.lists(st.integers(1, 600), max_size=4))
def test_each_line_comes_once_however_clocks_and_connections_break(
    stamps: list[str], cuts: list[int]
) -> None:
    """Stamps in any order, but each instant belongs to one run of lines, as on a real clock."""
    unique = [stamp for i, stamp in enumerate(stamps) if i == 0 or stamp not in stamps[:i]]
    log = b"".join(f"{stamp} line {i}\n".encode() for i, stamp in enumerate(unique))
    place = LogPlace()
    found = [text for end in [*cuts, len(log)] for text in taken(place, log[:end])]
    assert found == [f"line {i}".encode() for i in range(len(unique))]


def test_lines_of_one_time_all_come_and_none_comes_again_after_a_connection_ended() -> None:
    place = LogPlace()
    first = lines("01Z a", "02Z b", "02Z b", "02Z c")
    assert taken(place, first) == [b"a", b"b", b"b", b"c"]
    again = first + lines("02Z c", "03Z d")
    assert taken(place, again) == [b"c", b"d"]
    assert taken(place, lines("03Z d", "03Z d")) == [b"d"]


def test_a_clock_that_is_set_back_between_connections_loses_no_lines() -> None:
    place = LogPlace()
    assert taken(place, lines("40Z a")) == [b"a"]
    assert place.since == "2026-01-30T09:00:40Z"  # a day before
    assert taken(place, lines("40Z a", "05Z b")) == [b"b"]


@pytest.mark.parametrize("cut", [100, 2 * LONGEST_PART + 1])
def test_a_long_line_that_a_connection_has_cut_goes_on_where_it_was(cut: int) -> None:
    place = LogPlace()
    words = "".join(str(i % 10) for i in range(3 * LONGEST_PART))
    log = lines("01Z a", f"02Z {words}", "03Z b")
    data = log[: log.index(b"\n", 40) + 1]
    found = taken(place, data[:-cut]) + taken(place, log)
    assert found[0] == b"a"
    assert found[-1] == b"b"
    assert b"".join(found[1:-1]).decode() == words


def test_the_last_line_of_a_log_may_have_no_end() -> None:
    place = LogPlace()
    assert taken(place, lines("01Z a") + b"2026-01-31T09:00:02Z b") == [b"a"]
    assert place.rest() == b"b"
    assert place.rest() is None


def test_words_of_the_node_are_shown_once_and_are_no_time() -> None:
    place = LogPlace()
    words = b"unable to retrieve container logs for containerd://4f\n"
    assert taken(place, lines("01Z a") + words) == [b"a", words.rstrip()]
    assert taken(place, lines("01Z a") + words) == []
    assert place.since == "2026-01-30T09:00:01Z"


# Connections.


class Logs:
    """The logs of pods, with other commands in place of `kubectl logs`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *script: str) -> None:
        kubectl = Kubectl(None, None)
        self.commands: list[tuple[str, ...]] = []

        def command(*words: str) -> list[str]:
            self.commands.append(words)
            return ["bash", "-c", script[min(len(self.commands), len(script)) - 1]]

        monkeypatch.setattr(kubectl, "command", command)
        self.items: list[tuple[Any, Any]] = []
        self.logs = PodLogs(kubectl, lambda stream, item: self.items.append((stream, item)))

    def read(self, secs: float = 0.0) -> list[str]:
        """Opens what is due, waits for the streams' ends, and returns the new lines."""
        before = len(self.commands)
        self.logs.keep_reading(time.monotonic() + secs)
        opened = len(self.commands) - before
        wait_for(lambda: sum(item is None for _, item in self.items) == opened, "end of a log")
        items, self.items = self.items, []
        return [line for one in items for _, line in self.logs.take(*one)]


def pod(uid: str, state: str = "running") -> Pod:
    return Pod("worker/0", "cifar10-worker-0", uid, "node-a", state)


AHEAD = "printf '2026-01-31T10:00:00Z a\\n'"
BEHIND = "printf '2026-01-31T09:00:00Z b\\n'"


def test_a_pod_that_follows_another_is_read_from_its_first_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clocks of their nodes, and that of the API server, do not matter."""
    found = Logs(monkeypatch, AHEAD, BEHIND)
    found.logs.follow(pod("1"), 0.0)
    assert found.read() == ["a"]
    found.logs.follow(pod("2"), 0.0)
    assert found.read() == ["b"]
    assert not any("--since-time" in word for word in found.commands[1])


def test_a_log_is_not_opened_again_before_a_watch_shows_its_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name may be another pod's by now."""
    found = Logs(monkeypatch, AHEAD, BEHIND)
    found.logs.follow(pod("1"), 0.0)
    assert found.read() == ["a"]
    found.logs.watch_ended()
    assert found.read(60) == []
    assert len(found.commands) == 1
    found.logs.follow(pod("2"), 0.0)
    assert found.read(60) == ["b"]


@pytest.mark.parametrize("is_replaced", [True, False])
def test_lines_that_may_be_another_pods_wait_for_a_list(
    monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    later = AHEAD.replace("10:00:00Z a", "11:00:00Z c")
    found = Logs(monkeypatch, AHEAD, later)
    found.logs.follow(pod("1"), 0.0)
    assert found.read() == ["a"]
    assert not found.logs.wants_list
    assert found.read(60) == []
    assert found.logs.wants_list
    assert found.logs.listed(["1"], 0.0) == []  # it was asked for before
    if is_replaced:
        found.logs.gone("1")
        assert not found.logs.wants_list
        found.logs.follow(pod("2"), 0.0)
        assert found.read(60) == ["c"]
    else:
        assert found.logs.listed(["1"], time.monotonic() + 61) == [(pod("1"), "c")]
        assert found.read(120) == []


def test_a_log_that_broke_at_the_end_of_its_pod_is_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Logs(monkeypatch, f"{AHEAD}; exit 1", f"{AHEAD}; {AHEAD.replace('Z a', 'Z b')}")
    found.logs.follow(pod("1"), 0.0)
    found.logs.keep_reading(time.monotonic())
    found.logs.follow(pod("1", "ended"), 0.0)
    wait_for(lambda: len(found.items) == 2, "end of the log")
    items, found.items = found.items, []
    assert [line for one in items for _, line in found.logs.take(*one)] == ["a"]
    assert not found.logs.are_complete
    assert found.read(60) == ["b"]
    assert found.logs.are_complete


def test_the_log_of_a_pod_that_is_gone_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    error = 'echo "Error from server (NotFound): pods \\"x\\" not found" >&2; exit 1'
    found = Logs(monkeypatch, error)
    found.logs.follow(pod("1", "ended"), 0.0)
    assert found.read() == []
    assert found.logs.are_complete


def ended_watch(watch: Watch, script: str, now: float) -> str:
    """Lets a connection of a watch run and end; returns what to tell the user."""
    kubectl = Kubectl(None, None)
    items: list[Any] = []
    kubectl.command = lambda *words: ["bash", "-c", script]  # type: ignore[method-assign]
    watch.open(kubectl, lambda stream, item: items.append(item), now)
    wait_for(lambda: None in items, "end of the watch")
    return watch.ended(kubectl, now)[1]


DOWN = "echo 'The connection to the server x was refused' >&2; exit 1"
FORBIDDEN = "echo 'Error from server (Forbidden): pods is forbidden: no' >&2; exit 1"
ITEM = 'echo \'{"type":"ADDED","object":{}}\''


def test_an_outage_is_told_once_and_tried_again_at_growing_intervals() -> None:
    watch = Watch(("pods",), watch_events)
    now, told, waits = 0.0, [], []
    for script in (ITEM, DOWN, DOWN, DOWN, DOWN, DOWN, ITEM, DOWN):
        told.append(bool(ended_watch(watch, script, now)))
        waits.append(watch.due - now)
        now = watch.due
    assert told == [False, True, False, False, False, False, False, True]
    assert waits == [1, 2, 4, 8, 8, 8, 1, 2]


def test_a_watch_that_is_refused_from_the_start_ends_the_run() -> None:
    with pytest.raises(HostError, match="pods is forbidden: no"):
        ended_watch(Watch(("pods",), watch_events), FORBIDDEN, 0.0)
    with_events = Watch(("events",), watch_events, is_needed=False)
    assert "pods is forbidden: no" in ended_watch(with_events, FORBIDDEN, 0.0)
    watch = Watch(("pods",), watch_events)
    ended_watch(watch, ITEM, 0.0)
    assert "pods is forbidden: no" in ended_watch(watch, FORBIDDEN, 10.0)
