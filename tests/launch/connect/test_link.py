"""A connection to an agent that is closed before it is open."""

import errno
import os
import subprocess
import threading
from pathlib import Path

import pytest

from launch.agent.protocol import MAGIC, Message
from launch.connect import tries
from launch.connect.link import Link
from launch.errors import HostError
from tests.launch.launcher import wait_for


def make_link(*command: str) -> Link:
    return Link(command, lambda code, _: f"it ended with {code}", lambda *_: None)


def opening(link: Link) -> "tuple[threading.Thread, list[str]]":
    """Opens a link in a thread; the list gets the error."""
    errors: list[str] = []

    def work() -> None:
        try:
            link.open(300)
        except HostError as error:
            errors.append(str(error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, errors


def test_a_link_that_is_closed_while_it_opens_ends_its_process_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    link = make_link("sh", "-c", f"echo $$ >{file}.new; mv {file}.new {file}; exec sleep 300")
    thread, errors = opening(link)
    wait_for(file.exists, "the process")
    link.close(0)
    thread.join(30)
    assert errors == ["it ended with -9"]
    assert not os.path.exists(f"/proc/{file.read_text().strip()}")


def test_a_link_that_was_closed_before_gives_its_process_nothing_to_run() -> None:
    link = make_link("cat")
    link.close(0)
    with pytest.raises(HostError, match="it ended with 0"):
        link.open(30)
    link.close(0)


@pytest.mark.parametrize(
    "sent",
    [
        "no JSON",
        "[1]",
        '{"do": "end"}',
        '{"event": "exit", "task": "worker/0"}',
        '{"event": "lines", "task": "worker/0", "lines": [1], "dropped": 0}',
        '{"event":' * 100_000,
    ],
    ids=lambda sent: sent[:30],
)
def test_what_is_no_message_ends_the_connection_and_is_named(sent: str, tmp_path: Path) -> None:
    file = tmp_path / "sent"
    file.write_bytes(MAGIC + b'{"event":"hello"}\n' + sent.encode() + b"\n")
    heard: list[Message] = []
    link = Link(
        ("sh", "-c", f"cat {file}; exec sleep 300"), lambda *_: "", lambda _, one: heard.append(one)
    )
    link.open(60)
    wait_for(lambda: {"event": "lost"} in heard, "the end")
    assert heard == [{"event": "hello"}, {"event": "lost"}]
    assert link.why().startswith(
        f"it sent what is no message of an agent: {sent[:20].encode()!r}"[:-1]
    )
    link.close(0)


def test_a_message_without_an_end_is_bounded(tmp_path: Path) -> None:
    heard: list[Message] = []
    endless = f"printf '{MAGIC.decode()}'; tr '\\0' x </dev/zero"
    link = Link(
        ("sh", "-c", endless),
        lambda code, _: f"it ended with {code}",
        lambda *one: heard.append(one[1]),
    )
    with pytest.raises(HostError, match="it sent what is no message of an agent: b'xxx"):
        link.open(60)
    link.close(0)
    assert heard == [{"event": "lost"}]


def test_heartbeats_fill_no_queue_but_are_heard(tmp_path: Path) -> None:
    go = tmp_path / "go"
    send = (
        f'echo "launch-agent 1"; echo \'{{"event":"hello"}}\'; '
        f'until [ -e {go} ]; do sleep 0.05; done; echo \'{{"event":"beat"}}\''
    )
    heard: list[Message] = []
    link = Link(["sh", "-c", send], lambda *_: "", lambda _, message: heard.append(message))
    link.open(60)
    before = link.heard
    go.touch()
    wait_for(lambda: {"event": "lost"} in heard, "the end")
    link.close(0)
    assert heard == [{"event": "hello"}, {"event": "lost"}]
    assert link.heard > before


def busy_link(tmp_path: Path, times: int, heard: "list[Message]") -> Link:
    """A link to a host that is too busy at first; each try leaves a line in `tries`."""
    greet = f'printf \'{MAGIC.decode()}{{"event":"hello"}}\\n\'; exec cat 3>&1 >/dev/null'
    script = (
        f"echo $$ >> {tmp_path}/tries; "
        f"[ $(wc -l < {tmp_path}/tries) -gt {times} ] || {{ echo busy >&2; exit 255; }}; {greet}"
    )
    return Link(
        ["sh", "-c", script],
        lambda code, errors: f"{errors}: {code}",
        lambda _, message: heard.append(message),
        lambda code, errors: (code, errors) == (255, "busy"),
    )


def test_a_host_that_is_busy_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "PAUSE_SECS", (0.01, 0.02))
    heard: list[Message] = []
    link = busy_link(tmp_path, 4, heard)
    link.open(60)
    assert heard == [{"event": "hello"}]
    link.close(5)
    wait_for(lambda: heard[1:] == [{"event": "lost"}], "the end")
    assert (tmp_path / "tries").read_text().count("\n") == 5


def test_a_host_that_stays_busy_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "PAUSE_SECS", (0.01, 0.02))
    heard: list[Message] = []
    link = busy_link(tmp_path, 5, heard)
    with pytest.raises(HostError, match="^busy: 255$"):
        link.open(60)
    link.close(0)
    assert heard == [{"event": "lost"}]
    assert (tmp_path / "tries").read_text().count("\n") == 5


def test_a_link_that_is_closed_between_two_tries_makes_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "PAUSE_SECS", (300.0, 300.0))
    heard: list[Message] = []
    link = busy_link(tmp_path, 5, heard)
    thread, errors = opening(link)
    wait_for(lambda: link._tries_again, "the first try's end")
    link.close(0)
    thread.join(30)
    assert errors == ["busy: 255"]
    assert heard == [{"event": "lost"}]
    assert (tmp_path / "tries").read_text().count("\n") == 1


def test_a_link_whose_next_try_cannot_be_started_says_that_it_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "PAUSE_SECS", (0.01, 0.02))
    heard: list[Message] = []
    link = busy_link(tmp_path, 5, heard)

    def is_busy(code: int, errors: str) -> bool:
        link._command[0] = "no-such-command"  # as if ssh were removed between the tries
        return True

    link._is_busy = is_busy
    with pytest.raises(HostError, match="^no-such-command: No such file or directory"):
        link.open(60)
    assert heard == [{"event": "lost"}]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errno.ENOENT, "ssh: No such file or directory; is it installed?"),
        (errno.EMFILE, "ssh: Too many open files; raise `ulimit -n`"),
        (errno.ENOMEM, "ssh: Cannot allocate memory"),
    ],
)
def test_a_command_that_cannot_be_started_is_named_with_the_way_out(
    error: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(HostError) as raised:
        make_link("ssh").open(1)
    assert str(raised.value) == words
