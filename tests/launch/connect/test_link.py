"""How agents get to hosts, and the connections to them."""

import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from launch.agent.protocol import MAGIC, Message
from launch.cluster.host_list import from_hosts
from launch.cluster.model import Host, Limits
from launch.connect.agent_client import everywhere
from launch.connect.connections import Connections
from launch.connect.link import Link, Transport, payload
from launch.errors import HostError
from tests.launch.launcher import wait_for

HOSTS = [Host(name, name, (), "/data") for name in ("node0", "node1", "node2")]
BEGIN: Message = {"do": "begin"}
GREETING = MAGIC + b'{"event":"ready","ports":[]}\n'


def make_link(*command: str) -> Link:
    return Link("node1", command, lambda code, _: f"it ended with {code}", lambda *_: None)


@pytest.mark.parametrize(
    "sent",
    ["[1]", '{"event": "lost", "task": "worker/0"}', '{"event":' * 100_000],
    ids=lambda sent: sent[:30],
)
def test_what_is_no_message_ends_the_connection_and_is_named(sent: str, tmp_path: Path) -> None:
    file = tmp_path / "sent"
    beat = b'{"event":"beat"}\n'  # which fills no queue
    file.write_bytes(GREETING + beat + sent.encode() + b"\n")
    heard: list[Message] = []
    link = Link(
        "node1",
        ("sh", "-c", f"cat {file}; exec sleep 300"),
        lambda *_: "",
        lambda _, message: heard.append(message),
    )
    link.ask(BEGIN)
    wait_for(lambda: {"event": "lost"} in heard, "the end")
    assert heard == [{"event": "lost"}]
    assert link.why().startswith(
        f"it sent what is no message of an agent: {sent[:20].encode()!r}"[:-1]
    )
    link.close(0)


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("", "it printed much instead of starting an agent, at last b'xxx"),
        (MAGIC.decode(), "it sent what is no message of an agent: b'xxx"),
    ],
)
def test_endless_bytes_of_a_host_need_no_memory(before: str, words: str) -> None:
    heard: list[Message] = []
    link = Link(
        "node1",
        ("sh", "-c", f"printf '{before}'; tr '\\0' x </dev/zero"),
        lambda code, _: f"it ended with {code}",
        lambda *event: heard.append(event[1]),
    )
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(HostError, match=words):
        link.ask(BEGIN)
    link.close(0)
    assert heard == [{"event": "lost"}]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown < 20_000  # KiB


def test_a_host_that_starts_no_agent_is_waited_for_no_longer_than_for_an_agent_to_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("launch.connect.link._OPEN_SECS", 0.2)
    link = make_link("sleep", "300")
    with pytest.raises(HostError, match=r"^node1: no answer within 0\.2 s$"):
        link.ask(BEGIN, 120)
    link.close(0)


def test_a_connection_that_is_ended_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "sent").write_bytes(GREETING)
    before = set(threading.enumerate())
    takes = f"head -c {len(payload())} >{tmp_path}/taken; cat {tmp_path}/sent; exec cat >/dev/null"
    link = make_link("sh", "-c", takes)
    link.ask(BEGIN)
    link.kill()
    wait_for(lambda: set(threading.enumerate()) <= before, "the end of the threads")


def test_a_heartbeat_is_heard(tmp_path: Path) -> None:
    (tmp_path / "sent").write_bytes(GREETING)
    beats = """while :; do echo '{"event":"beat"}'; sleep 0.05; done"""
    link = make_link("sh", "-c", f"cat {tmp_path}/sent; {beats}")
    link.ask(BEGIN)
    heard = link.heard
    wait_for(lambda: link.heard > heard, "the heartbeat")
    link.kill()
    link.close(60)


def test_the_lock_of_an_editor_is_no_part_of_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "main.py").touch()
    (tmp_path / ".#main.py").symlink_to("ann@desk.1234:5678")
    monkeypatch.setattr("importlib.resources.files", lambda _: tmp_path)
    assert b"'launch.agent.main': ''}" in payload.__wrapped__()


def test_another_answer_than_the_one_that_was_asked_for_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sent").write_bytes(MAGIC + b'{"event":"checked","failures":[]}\n')
    link = make_link("sh", "-c", f"cat {tmp_path / 'sent'}; exec sleep 300")
    with pytest.raises(HostError, match="^node1: its agent answered checked to begin$"):
        link.ask(BEGIN)
    link.close(0)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errno.ENOENT, "ssh: No such file or directory; is it installed?"),
        (errno.EMFILE, "ssh: Too many open files; raise `ulimit -n`"),
    ],
)
def test_a_command_that_cannot_be_started_is_named_with_the_way_out(
    error: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(HostError) as raised:
        make_link("ssh")
    assert str(raised.value) == f"node1: {words}"


def test_the_remote_command_needs_no_quoting_in_any_shell() -> None:
    lines: list[str] = []

    def command(host: Host, words: Sequence[str], line: str, lease_secs: float) -> list[str]:
        lines.append(line)
        return ["true"]

    Transport(command, lambda *_: "").link(HOSTS[0], "20260101-000000-abcd", print).close(60)
    assert lines == [
        "exec python3 -I -S -c 'import sys; "
        "exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))' "
        "launch-agent 20260101-000000-abcd"
    ]


class FakeLink:
    """A connection to an agent that has found a port."""

    heard = 0.0

    def ask(self, order: Message) -> Message:
        return {"event": "ready", "ports": [20001]}

    def send(self, message: Message) -> None:
        pass

    def close(self, patience_secs: float) -> None:
        pass


class FakeTransport:
    """Opens connections without hosts."""

    def link(self, host: Any, run_id: str, hear: Any, lease_secs: float) -> FakeLink:
        return FakeLink()


def test_an_agent_is_late_only_for_a_launcher_that_has_looked_all_the_time() -> None:
    cluster = replace(from_hosts("ip0"), limits=Limits(lease_secs=6))
    connections = Connections(cluster, "run", cast(Any, FakeTransport()))
    link: Any = FakeLink()
    connections.use("ip0", link)
    link.heard = 100.0
    assert connections.silent(106.0) == []
    assert connections.silent(106.5) == []  # looks once a second
    assert connections.silent(109.0) == []  # it was away, so that messages may be unread
    assert connections.silent(110.0) == ["ip0"]


def test_a_host_with_too_few_ports_is_named() -> None:
    words = "^ip0: found 1 free ports for 2 tasks; end what uses"
    connections = Connections(from_hosts("ip0"), "run", cast(Any, FakeTransport()))
    with pytest.raises(HostError, match=words), connections:
        connections.open_all(lambda: False, lambda host: 2)


def name_of(host: Host) -> str:
    if host.name == "node1":
        raise HostError("node1: it is down")
    return host.name.upper()


def test_every_answer_and_every_failure_has_its_host() -> None:
    answers = everywhere(HOSTS, name_of)
    assert list(answers.found.items()) == [("node0", "NODE0"), ("node2", "NODE2")]
    assert answers.failed == {"node1": "node1: it is down"}
    answers.failed["node2"] = "node2: no"
    with pytest.raises(HostError, match="^node1: it is down\n       node2: no$"):
        answers.of_all()


def test_no_host_waits_for_another() -> None:
    meeting = threading.Barrier(3)
    answers = everywhere(HOSTS, lambda host: meeting.wait(30))
    assert sorted(answers.of_all().values()) == [0, 1, 2]


def test_what_happens_meanwhile_can_end_the_wait() -> None:
    given_up = threading.Event()
    everywhere(HOSTS, lambda host: given_up.wait(60), meanwhile=given_up.set).of_all()
    assert given_up.is_set()


def test_a_host_waits_for_the_reader_of_its_messages_and_not_for_one_that_has_gone() -> None:
    connections = Connections(from_hosts("ip0"), "run", cast(Any, FakeTransport()))
    size = connections.events.maxsize
    sent: list[int] = []

    def send() -> None:
        for number in range(size + 3):
            connections.put(("ip0", None, {"event": "note", "text": str(number)}))
            sent.append(number)

    sender = threading.Thread(target=send, daemon=True)
    with connections:
        sender.start()
        wait_for(lambda: len(sent) == size, "full events")
        assert connections.events.get()[2]["text"] == "0"
        wait_for(lambda: len(sent) == size + 1, "the next event")
        assert connections.events.full()
    sender.join(60)
    assert len(sent) == size + 3
    assert connections.events.full()


def test_an_agent_that_writes_many_errors_is_not_held_up(tmp_path: Path) -> None:
    file = tmp_path / "sent"
    file.write_bytes(GREETING)
    many = "import sys; sys.stderr.write('x' * 1_000_000 + 'the last')"
    command = ("sh", "-c", f'"$0" -c "{many}"; cat {file}; exec sleep 300', sys.executable)
    link = Link("node1", command, lambda _, errors: errors[-8:], lambda *_: None)
    link.ask(BEGIN)
    link.close(0)
    assert link.why() == "the last"
