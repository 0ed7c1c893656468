"""The clock of the main thread's phases stands still while the process does."""

import pytest

from cifar10.host import activity
from cifar10.host.activity import STEP, Activity


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The machine's time, which a test changes."""
    found = [100.0]
    monkeypatch.setattr(activity.time, "monotonic", lambda: found[0])
    return found


def test_a_gap_between_two_questions_is_a_standstill(now: list[float]) -> None:
    noted = Activity()
    for secs in (1.0, 2.0, 600.0, 0.5):
        now[0] += secs
        noted.now()
    assert noted.now() == 1.0 + 2.0 + 2.0 + 0.5


def test_the_longest_phase_leaves_out_the_time_for_which_the_process_stood_still(
    now: list[float],
) -> None:
    noted = Activity()
    noted.begin(STEP)
    now[0] += 1.0
    noted.now()  # the watchdog's thread
    now[0] += 600.0  # then the process is stopped, and the main thread goes on before that thread
    noted.begin(STEP)
    assert noted.longest == {STEP: 3.0}
