"""Short periods, and an address where nobody listens."""

import pytest

from tests.cifar10.answering import answering


@pytest.fixture(autouse=True)
def short_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes monitors look twenty times a second."""
    monkeypatch.setattr("cifar10.cluster.liveness._PERIOD_SECS", 0.05)


@pytest.fixture
def nobody() -> str:
    """An address of this machine where nobody listens."""
    with answering() as address:
        pass
    return address
