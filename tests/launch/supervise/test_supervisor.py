"""The supervisor's rules without a process, its expected, and what is told of it."""

import itertools
import signal
from typing import Any

import pytest

from launch.cluster.model import Host, Limits
from launch.cluster.tasks import Devices, Task
from launch.record.result import ExitReason, Result
from launch.supervise.supervisor import Action, Note, Signal, Start, Supervisor
from launch.supervise.task_state import TaskState

HOST = Host("node0", "node0", (), workdir="/data")
LIMITS = Limits(start_secs=100, idle_secs=50, grace_secs=10, stop_secs=20)


def task(task_type: str, index: int = 0) -> Task:
    return Task(task_type, index, HOST, 2222, Devices(), "{}", ("python3",))


def running(*names: str, restarts: int = 0, limits: Limits = LIMITS) -> Supervisor:
    tasks = [task(name.split("/")[0], int(name.split("/")[1])) for name in names]
    supervisor = Supervisor(tasks, limits, restarts, 0)
    supervisor.start()
    for name in names:
        supervisor.started(name)
    return supervisor


def signals(actions: list[Action]) -> list[tuple[str, int]]:
    return [(a.task, int(a.signum)) for a in actions if isinstance(a, Signal)]


def starts(actions: list[Action]) -> list[str]:
    return [action.task for action in actions if isinstance(action, Start)]


def notes(actions: list[Action]) -> list[str]:
    return [action.text for action in actions if isinstance(action, Note)]


def result_of(supervisor: Supervisor) -> Result:
    assert supervisor.result is not None
    return supervisor.result


ALL = ("master/0", "worker/0", "ps/0")


def test_the_ps_are_started_first() -> None:
    supervisor = Supervisor([task("master"), task("ps"), task("worker")], LIMITS, 0, 0)
    assert starts(supervisor.start()) == ["ps/0", "master/0", "worker/0"]


def test_a_worker_that_fails_after_the_master_is_done_is_told_of() -> None:
    supervisor = running(*ALL)
    supervisor.ended("master/0", 0, 1)
    said = notes(supervisor.ended("worker/0", 1, 2))
    assert said == ["worker/0 on node0: exit code 1"]
    # The launcher itself asks the ps to end.
    assert notes(supervisor.ended("ps/0", -15, 3)) == []
    assert result_of(supervisor).exit_code == 0


def test_a_worker_that_stays_is_told_to_end_after_the_grace() -> None:
    supervisor = running(*ALL)
    supervisor.ended("master/0", 0, 1)
    assert signals(supervisor.tick(10.9)) == []
    assert signals(supervisor.tick(11)) == [("worker/0", signal.SIGTERM)]
    killed = supervisor.tick(31)
    assert signals(killed) == [("worker/0", signal.SIGKILL)]
    assert notes(killed) == ["worker/0 still running: killed"]
    assert signals(supervisor.ended("worker/0", -9, 31.1)) == [("ps/0", signal.SIGTERM)]
    assert supervisor.tick(36) == []
    assert signals(supervisor.tick(37)) == [("ps/0", signal.SIGKILL)]
    supervisor.ended("ps/0", -9, 37.1)
    assert result_of(supervisor).exit_code == 0


def test_a_master_may_evaluate_for_long_after_its_ps_have_left() -> None:
    supervisor = running(*ALL)
    supervisor.heard(1, stepped=True)
    supervisor.ended("worker/0", 0, 1)
    supervisor.ended("ps/0", 0, 2)
    assert supervisor.tick(40) == []
    supervisor.ended("master/0", 0, 45)
    assert result_of(supervisor).exit_code == 0


def test_a_chief_is_a_lead_and_an_evaluator_ends_with_the_workers() -> None:
    supervisor = running("chief/0", "evaluator/0", "ps/0")
    assert signals(supervisor.stop(2, 1)) == [("chief/0", signal.SIGTERM)]
    assert signals(supervisor.ended("chief/0", 143, 2)) == [("evaluator/0", signal.SIGTERM)]
    assert signals(supervisor.ended("evaluator/0", 143, 3)) == [("ps/0", signal.SIGTERM)]


def test_a_job_that_is_stopped_before_it_starts_is_over() -> None:
    supervisor = Supervisor([task("master")], LIMITS, 0, 0)
    assert supervisor.states["master/0"].status == "waiting"
    assert supervisor.stop(2, 0) == []
    assert supervisor.states["master/0"].status == "ended"
    assert supervisor.result is not None


def test_an_end_that_is_told_of_twice_counts_once() -> None:
    supervisor = running("master/0", "worker/0", restarts=3)
    supervisor.ended("worker/0", 1, 1)
    assert supervisor.ended("worker/0", 1, 1.5) == []
    assert supervisor.states["worker/0"].restarts == 1


def test_word_of_a_start_that_comes_after_the_end_changes_nothing() -> None:
    supervisor = running("master/0", "worker/0")
    supervisor.ended("worker/0", 0, 1)
    supervisor.started("worker/0")
    assert supervisor.states["worker/0"].status == "ended"


def test_a_mistake_of_the_users_is_not_repeated() -> None:
    supervisor = running("master/0", "worker/0", restarts=3)
    supervisor.ended("worker/0", 2, 1)
    assert supervisor.ending


def test_a_failure_stops_the_lead_first_and_the_ps_last() -> None:
    supervisor = running("master/0", "worker/0", "worker/1", "ps/0")
    assert signals(supervisor.ended("worker/1", 3, 1)) == [("master/0", signal.SIGTERM)]
    assert signals(supervisor.ended("master/0", 143, 2)) == [("worker/0", signal.SIGTERM)]
    assert signals(supervisor.ended("worker/0", 143, 3)) == [("ps/0", signal.SIGTERM)]
    assert supervisor.result is None
    supervisor.ended("ps/0", -15, 4)
    assert result_of(supervisor) == Result(
        3, "worker/1 on node0 failed: exit code 3", "worker/1", cause=ExitReason.TASK_FAILED
    )


def word_of_the_platform(supervisor: Supervisor, now: float) -> list[Action]:
    return supervisor.stop(signal.SIGTERM, now, "node0: the agent got SIGTERM", ExitReason.PLATFORM)


def test_a_ps_that_the_platform_ended_does_not_cost_the_master_its_time_to_save() -> None:
    supervisor = running(*ALL)
    assert signals(supervisor.ended("ps/0", -15, 10)) == [("master/0", signal.SIGTERM)]
    assert signals(word_of_the_platform(supervisor, 10.1)) == []
    assert signals(supervisor.tick(29.9)) == []
    supervisor.ended("master/0", 143, 29.95)
    supervisor.ended("worker/0", 143, 29.95)
    assert result_of(supervisor) == Result(
        143, "node0: the agent got SIGTERM", cause=ExitReason.PLATFORM
    )
    assert supervisor.states["ps/0"].status == "failed"


def test_a_sigterm_is_the_tasks_failure_if_the_platform_says_nothing_of_it_in_time() -> None:
    for is_told in (True, False):
        supervisor = running("master/0")
        supervisor.ended("master/0", -15, 10)
        assert supervisor.tick(11.9) == []
        assert supervisor.result is None
        word_of_the_platform(supervisor, 11.9) if is_told else supervisor.tick(12)
        words = "node0: the agent got" if is_told else "master/0 on node0 failed: killed by"
        assert result_of(supervisor).reason == f"{words} SIGTERM"


def test_the_master_that_was_killed_is_named_though_word_of_its_worker_came_first() -> None:
    supervisor = running(*ALL)
    assert signals(supervisor.ended("worker/0", 1, 10)) == [("master/0", signal.SIGTERM)]
    assert notes(supervisor.ended("master/0", -9, 10.3)) == [
        "master/0 on node0 failed: killed by SIGKILL"
    ]
    supervisor.ended("ps/0", -15, 11)
    assert (result_of(supervisor).exit_code, result_of(supervisor).task) == (137, "master/0")
    assert {name: state.status for name, state in supervisor.states.items()} == {
        "master/0": "failed",
        "worker/0": "failed",
        "ps/0": "ended",
    }


@pytest.mark.parametrize("code", [143, 1])
def test_the_end_of_a_task_that_this_launcher_has_signalled_says_nothing(code: int) -> None:
    supervisor = running(*ALL)
    supervisor.ended("worker/0", 3, 10)
    assert notes(supervisor.ended("master/0", code, 10.5)) == []
    supervisor.ended("ps/0", -15, 11)
    assert (result_of(supervisor).exit_code, result_of(supervisor).task) == (3, "worker/0")
    assert supervisor.states["master/0"].status == "ended"


def test_a_signal_that_came_too_late_to_the_host_explains_nothing() -> None:
    supervisor = running(*ALL)
    supervisor.ended("worker/0", 1, 10)
    supervisor.ended("master/0", 143, 10.5, signals=())
    supervisor.ended("ps/0", -15, 11, signals=[15])
    assert supervisor.states["master/0"].status == "failed"
    assert supervisor.tick(12) == []
    assert (result_of(supervisor).exit_code, result_of(supervisor).task) == (143, "master/0")


def test_a_master_that_was_done_before_its_worker_failed_is_a_success() -> None:
    supervisor = running("master/0", "worker/0", "worker/1", "ps/0")
    assert signals(supervisor.ended("worker/0", 1, 10)) == [("master/0", signal.SIGTERM)]
    assert signals(supervisor.ended("master/0", 0, 10.1, signals=())) == []
    assert signals(supervisor.tick(20)) == []
    assert signals(supervisor.ended("worker/1", 0, 20.05)) == [("ps/0", signal.SIGTERM)]
    supervisor.ended("ps/0", -15, 21)
    assert result_of(supervisor).exit_code == 0
    assert supervisor.states["worker/0"].status == "failed"


def test_a_master_that_ends_with_0_because_it_was_asked_to_is_not_done() -> None:
    supervisor = running("master/0")
    supervisor.stop(signal.SIGINT, 1)
    supervisor.ended("master/0", 0, 1.5)
    assert result_of(supervisor).reason == "stopped by SIGINT"


def test_a_sigterm_to_the_launcher_is_the_platforms_if_the_platform_says_so_too() -> None:
    supervisor = running(*ALL)
    assert signals(supervisor.stop(signal.SIGTERM, 10)) == [("master/0", signal.SIGTERM)]
    told = word_of_the_platform(supervisor, 10.2)
    assert (signals(told), len(notes(told))) == ([], 1)
    assert word_of_the_platform(supervisor, 10.3) == []
    assert supervisor.stop(signal.SIGTERM, 12) == []  # and again
    assert supervisor.stop(signal.SIGINT, 15) == []  # so the user's first one lets the tasks save
    assert ("master/0", signal.SIGKILL) in signals(supervisor.stop(signal.SIGINT, 16))
    for name in ALL:
        supervisor.ended(name, -9, 17)
    assert result_of(supervisor).cause is ExitReason.PLATFORM


def test_a_stop_in_the_grace_after_a_success_ends_the_others_now_and_stays_a_success() -> None:
    supervisor = running(*ALL)
    supervisor.ended("master/0", 0, 1)
    assert signals(supervisor.stop(signal.SIGINT, 2)) == [("worker/0", signal.SIGTERM)]
    supervisor.ended("worker/0", 143, 3)
    supervisor.ended("ps/0", 143, 4)
    assert result_of(supervisor) == Result(0, "master/0 is done", cause=ExitReason.DONE)


def test_restarts_wait_longer_each_time_up_to_half_a_minute() -> None:
    supervisor = running("master/0", "worker/0", restarts=7, limits=Limits())
    now = 0.0
    for wait in (1, 2, 4, 8, 16, 30, 30):
        supervisor.ended("worker/0", 1, now)
        assert starts(supervisor.tick(now + wait - 0.1)) == []
        assert starts(supervisor.tick(now + wait)) == ["worker/0"]
        supervisor.started("worker/0")
        now += 40
    assert notes(supervisor.ended("worker/0", 1, now)) == [
        "worker/0 on node0 failed: exit code 1, after 7 restarts; stopping the others"
    ]


def test_a_task_that_never_ran_is_not_started_again() -> None:
    supervisor = Supervisor([task("master"), task("worker")], LIMITS, 5, 0)
    supervisor.start()
    supervisor.ended("worker/0", None, 1, "port 2222 is in use")
    assert supervisor.ending


def test_a_host_that_stays_away_ends_the_job_though_restarts_are_left() -> None:
    supervisor = running("master/0", "worker/0", restarts=2)
    supervisor.ended("worker/0", None, 0, "lost")
    assert starts(supervisor.tick(1)) == ["worker/0"]
    supervisor.ended("worker/0", None, 2, "unreachable", is_final=True)
    assert supervisor.ending


def test_a_stop_is_orderly_and_a_second_one_is_not() -> None:
    supervisor = running(*ALL)
    assert signals(supervisor.stop(2, 1)) == [("master/0", signal.SIGTERM)]
    assert signals(supervisor.stop(2, 2)) == [(name, signal.SIGKILL) for name in ALL]
    for name in ALL:
        supervisor.ended(name, -9, 3)
    assert result_of(supervisor) == Result(130, "stopped by SIGINT", cause=ExitReason.USER)


def test_a_start_without_a_step_is_timed_out() -> None:
    supervisor = running(*ALL)
    assert supervisor.tick(100) == []  # idle_secs is 50, but counts from the first step
    assert notes(supervisor.tick(101)) == ["no training step within 100 s; stopping"]
    assert signals(supervisor.ended("master/0", 143, 102)) == [("worker/0", signal.SIGTERM)]
    supervisor.ended("worker/0", 143, 103)
    supervisor.ended("ps/0", -15, 104)
    words = "no training step within 100 s; the limits are start_secs and idle_secs"
    assert result_of(supervisor) == Result(124, words, cause=ExitReason.TIME_LIMIT)


def test_silence_is_timed_out_once_training_has_begun() -> None:
    supervisor = running(*ALL)
    supervisor.heard(99, stepped=True)
    assert supervisor.tick(149) == []
    assert notes(supervisor.tick(150)) == ["no line from any task for 50 s; stopping"]


def test_a_task_nobody_hears_of_does_not_hold_up_the_end() -> None:
    supervisor = running("master/0", limits=LIMITS)
    supervisor.stop(2, 0)
    assert signals(supervisor.tick(20)) == [("master/0", signal.SIGKILL)]
    assert supervisor.tick(24.9) == []
    assert notes(supervisor.tick(25)) == ["master/0: end not confirmed; run `clean`"]
    assert supervisor.result is not None


USER = Result(130, "stopped by SIGINT", cause=ExitReason.USER)
PLATFORM = Result(143, "node1: the agent got SIGTERM", cause=ExitReason.PLATFORM)
HOST_LOST = Result(1, "node1: lost", cause=ExitReason.HOST_LOST)
SIGNAL = Result(137, "master/0 failed: killed by SIGKILL", cause=ExitReason.TASK_FAILED)
EXIT_CODE = Result(1, "worker/0 failed: exit code 1", cause=ExitReason.TASK_FAILED)
DONE = Result(0, "master/0 is done", cause=ExitReason.DONE)


def test_the_order_of_reports_in_the_window_does_not_matter() -> None:
    for order in itertools.permutations([USER, PLATFORM, HOST_LOST, SIGNAL, EXIT_CODE]):
        supervisor = running()
        for delay, result in enumerate(order):
            supervisor.take_result(result, 10 + delay / 10)
        assert supervisor.expected is USER


def test_the_first_of_two_like_reports_counts_and_none_after_the_window() -> None:
    supervisor = running()
    supervisor.take_result(EXIT_CODE, 10)
    assert not supervisor.take_result(
        Result(3, "worker/1 failed", cause=ExitReason.TASK_FAILED), 10
    )
    assert not supervisor.take_result(USER, 12)
    assert supervisor.expected is EXIT_CODE


def test_a_lead_that_was_done_in_time_is_a_success_whatever_is_reported_before_or_after() -> None:
    for other in (USER, PLATFORM, HOST_LOST, SIGNAL, EXIT_CODE):
        supervisor = running()
        supervisor.take_result(other, 10)
        assert supervisor.take_result(DONE, 11)
        assert not supervisor.take_result(other, 11)


TERM = (int(signal.SIGTERM),)
KILL = (int(signal.SIGTERM), int(signal.SIGKILL))


def state(task_type: str = "master", **changes: Any) -> TaskState:
    found = TaskState(task(task_type), "running")
    for name, value in changes.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "running"),
        ({"restarts": 2}, "running (2 restarts)"),
        ({"signals": TERM}, "stopping"),
        ({"status": "ended", "code": 143, "signals": TERM}, "stopped"),
        ({"status": "ended", "code": -9, "signals": KILL}, "stopped"),
        ({"status": "ended", "code": 0, "signals": TERM}, "done"),
        ({"status": "ended", "code": 1, "signals": TERM}, "ended"),
        ({"status": "ended", "code": 143}, "ended"),
        ({"status": "failed", "code": 1}, "failed"),
    ],
)
def test_a_state_tells_a_stop_of_the_launchers_from_a_failure(
    changes: dict[str, Any], words: str
) -> None:
    assert state(**changes).row().state == words


def test_a_stopped_task_shows_what_it_saved_and_not_its_exit_code() -> None:
    stopped: dict[str, Any] = {
        "status": "ended",
        "code": 143,
        "signals": TERM,
        "last": "exit code 143",
    }
    found = [state(**stopped), state("worker", **stopped)]
    for task_state in found:
        task_state.take(["step 3/60  loss 2", "stopped by signal 15"])
    found[0].take(["saved output/model.ckpt-3", "stopped by signal 15"])
    assert [task_state.row().last for task_state in found] == ["saved output/model.ckpt-3", ""]


def test_a_validation_is_progress_too() -> None:
    training = "epoch 0.1/1  step 41/300  loss 2"
    master = state()
    assert master.take([training])
    assert not master.take(["validation accuracy 0.2560 at step 60 (best so far)"])
    assert (master.step, master.progress) == ("60/300", training)
