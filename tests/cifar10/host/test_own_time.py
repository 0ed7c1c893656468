"""The clock that stands still while its process does."""

import pytest

from cifar10.host import activity
from cifar10.host.activity import STEP, Activity, OwnTime


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The machine's time, which a test changes."""
    found = [100.0]
    monkeypatch.setattr(activity.time, "monotonic", lambda: found[0])
    return found


def test_all_time_counts_while_nobody_watches(now: list[float]) -> None:
    clock = OwnTime()
    now[0] += 600.0
    assert clock.now() == 600.0


def test_a_gap_between_two_questions_is_a_standstill(now: list[float]) -> None:
    clock = OwnTime()
    clock.count_gaps_up_to(2.0)
    for secs in (1.0, 2.0, 600.0, 0.5):
        now[0] += secs
        clock.now()
    assert clock.now() == 1.0 + 2.0 + 2.0 + 0.5


def test_the_longest_phase_leaves_out_the_time_for_which_the_process_stood_still(
    now: list[float],
) -> None:
    noted = Activity()
    noted.time.count_gaps_up_to(2.0)
    noted.begin(STEP)
    now[0] += 1.0
    noted.time.now()  # the watch's thread
    now[0] += 600.0  # then the process is stopped, and the main thread goes on before the watch
    noted.begin(STEP)
    assert noted.longest == {STEP: 3.0}
