import itertools

import pytest

from launch.record.outcome import Cause, Outcome
from launch.supervise.settling import Settling

USER = Outcome(130, "stopped by SIGINT", cause=Cause.USER)
PLATFORM = Outcome(143, "node1: the agent got SIGTERM", cause=Cause.PLATFORM)
HOST = Outcome(1, "node1: lost", cause=Cause.HOST_LOST)
SIGNAL = Outcome(137, "master/0 failed: killed by SIGKILL", cause=Cause.TASK_FAILED)
EXIT_CODE = Outcome(1, "worker/0 failed: exit code 1", cause=Cause.TASK_FAILED)
DONE = Outcome(0, "master/0 is done", cause=Cause.DONE)


def test_nothing_is_settled_before_the_first_report():
    assert Settling().verdict is None
    assert not Settling().is_settled(1e9)


@pytest.mark.parametrize("nearer", [USER, PLATFORM, HOST, SIGNAL])
def test_a_report_that_is_nearer_to_the_cause_replaces_the_first_one(nearer):
    settling = Settling(secs=2)
    assert settling.report(EXIT_CODE, 10)
    assert settling.report(nearer, 11.9)
    assert settling.verdict is nearer


def test_the_order_of_reports_in_the_window_does_not_matter():
    for order in itertools.permutations([USER, PLATFORM, HOST, SIGNAL, EXIT_CODE]):
        settling = Settling(secs=2)
        for delay, outcome in enumerate(order):
            settling.report(outcome, 10 + delay / 10)
        assert settling.verdict is USER


def test_of_two_reports_of_the_same_rank_the_first_one_counts():
    settling = Settling(secs=2)
    settling.report(EXIT_CODE, 10)
    assert not settling.report(Outcome(3, "worker/1 failed", cause=Cause.TASK_FAILED), 10)
    assert settling.verdict is EXIT_CODE


def test_a_report_after_the_window_changes_nothing():
    settling = Settling(secs=2)
    settling.report(EXIT_CODE, 10)
    assert not settling.report(USER, 12)
    assert settling.verdict is EXIT_CODE
    assert settling.is_settled(12)


def test_a_success_is_final():
    settling = Settling(secs=2)
    settling.report(DONE, 10)
    assert settling.is_settled(10)
    assert not settling.report(USER, 10)
    assert settling.verdict is DONE


def test_a_sigterm_to_the_launcher_may_be_explained_by_the_platform():
    terminated = Outcome(143, "stopped by SIGTERM", cause=Cause.USER)
    for order in itertools.permutations([PLATFORM, terminated, HOST, SIGNAL]):
        settling = Settling(secs=2)
        for outcome in order:
            settling.report(outcome, 10)
        assert settling.verdict is PLATFORM


def test_a_lead_that_was_done_in_time_is_a_success_whatever_was_reported_before():
    for first in (USER, PLATFORM, HOST, SIGNAL, EXIT_CODE):
        settling = Settling(secs=2)
        settling.report(first, 10)
        assert settling.report(DONE, 11)


def test_a_time_limit_is_the_users_word_too():
    late = Outcome(124, "no training step within 600 s", cause=Cause.TIME_LIMIT)
    settling = Settling(secs=2)
    settling.report(late, 10)
    assert not settling.report(USER, 10)
    assert not settling.report(PLATFORM, 10)
    assert settling.verdict is late
