"""Short periods, and a task where nobody listens."""

import pytest

from cifar10.cluster.spec import Task
from tests.cifar10.answering import answering


@pytest.fixture(autouse=True)
def short_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes monitors look twenty times a second."""
    monkeypatch.setattr("cifar10.guard.peers._PERIOD_SECS", 0.05)


@pytest.fixture
def nobody() -> Task:
    """A task at an address of this machine where nobody listens."""
    with answering() as address:
        pass
    return Task("ps", 0, "ps/0", address)
