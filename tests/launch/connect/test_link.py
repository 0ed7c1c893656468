"""A connection to an agent that is closed before it is open."""

import os
import threading
from pathlib import Path

import pytest

from launch.connect.link import Link
from launch.errors import HostError
from tests.launch.launcher import wait_for


def make_link(*command: str) -> Link:
    return Link(command, lambda code, _: f"it ended with {code}", lambda *_: None)


def test_a_link_that_is_closed_while_it_opens_ends_its_process_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    link = make_link("sh", "-c", f"echo $$ >{file}.new; mv {file}.new {file}; exec sleep 300")
    errors: list[str] = []

    def work() -> None:
        try:
            link.open(300)
        except HostError as error:
            errors.append(str(error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
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
