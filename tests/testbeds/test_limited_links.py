import subprocess
from collections.abc import Callable

import pytest

from testbeds import limited_links, namespaces
from testbeds.errors import TestbedError
from testbeds.limited_links import Machine, Machines


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (subprocess.CalledProcessError(1, ["ip"], stderr="no"), TestbedError),
        (OSError(), TestbedError),
        (TestbedError("no"), TestbedError),
    ],
    ids=["Ctrl-C", "a command", "TAP", "else"],
)
def test_machines_that_could_not_be_made_completely_are_removed(
    error: BaseException, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []

    def make(machines: Machines) -> None:
        raise error

    def note(what: str) -> Callable[..., None]:
        return lambda *_: removed.append(what)

    monkeypatch.setattr(limited_links, "why_not", lambda: None)
    monkeypatch.setattr(limited_links, "remove_dead", note("of dead processes"))
    monkeypatch.setattr(namespaces, "unused_network", lambda: "10.9.8")
    monkeypatch.setattr(namespaces, "of_dead_processes", lambda names: [])
    monkeypatch.setattr(Machines, "_make", make)
    monkeypatch.setattr(Machines, "_remove", note("all"))
    with pytest.raises(raised), Machines([Machine(0, "0")]):
        pass
    assert removed == ["of dead processes", "all"]
