"""The supervisor's rules, without a process."""

import json
import signal
from typing import Optional

import pytest

from launch.cluster.model import Host, Limits
from launch.cluster.tasks import Devices, Task
from launch.record.outcome import Cause
from launch.supervise.actions import Action, Note, Signal, Start
from launch.supervise.supervisor import Supervisor

HOST = Host("node0", "node0", (), workdir="/data")
LIMITS = Limits(start_secs=100, idle_secs=50, grace_secs=10, stop_secs=20)


def task(task_type: str, index: int = 0) -> Task:
    return Task(task_type, index, HOST, 2222, Devices(), json.dumps({}), ("python3",))


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


ALL = ("master/0", "worker/0", "ps/0")


def test_the_ps_are_started_first() -> None:
    supervisor = Supervisor([task("master"), task("ps"), task("worker")], LIMITS, 0, 0)
    assert starts(supervisor.start()) == ["ps/0", "master/0", "worker/0"]


def test_the_end_of_the_master_is_the_end_of_the_job() -> None:
    supervisor = running(*ALL)
    assert signals(supervisor.ended("master/0", 0, 1)) == []
    assert signals(supervisor.ended("worker/0", 0, 2)) == [("ps/0", signal.SIGTERM)]
    supervisor.ended("ps/0", -15, 3)
    assert supervisor.outcome is not None
    assert supervisor.outcome.exit_code == 0


def test_a_worker_that_fails_after_the_master_is_done_is_told_of() -> None:
    supervisor = running(*ALL)
    supervisor.ended("master/0", 0, 1)
    said = notes(supervisor.ended("worker/0", 1, 2))
    assert said == ["worker/0 on node0: exit code 1; see its log"]
    # The launcher itself asks the ps to end.
    assert notes(supervisor.ended("ps/0", -15, 3)) == []
    assert supervisor.outcome is not None
    assert supervisor.outcome.exit_code == 0


def test_a_worker_that_stays_is_told_to_end_after_the_grace() -> None:
    supervisor = running(*ALL)
    supervisor.ended("master/0", 0, 1)
    assert signals(supervisor.tick(10.9)) == []
    assert signals(supervisor.tick(11)) == [("worker/0", signal.SIGTERM)]
    killed = supervisor.tick(31)
    assert signals(killed) == [("worker/0", signal.SIGKILL)]
    assert notes(killed) == ["worker/0 did not end in time: killed"]
    assert signals(supervisor.ended("worker/0", -9, 31.1)) == [("ps/0", signal.SIGTERM)]
    assert signals(supervisor.tick(37)) == [("ps/0", signal.SIGKILL)]
    supervisor.ended("ps/0", -9, 37.1)
    assert supervisor.outcome is not None
    assert supervisor.outcome.exit_code == 0


def test_a_worker_that_is_done_early_is_no_failure() -> None:
    supervisor = running(*ALL)
    assert notes(supervisor.ended("worker/0", 0, 1)) == ["worker/0 is done"]
    assert not supervisor.ending
    assert supervisor.states["worker/0"].status == "ended"


def test_a_ps_that_leaves_a_moment_before_the_master_is_no_failure() -> None:
    supervisor = running(*ALL)
    assert supervisor.ended("ps/0", 0, 1) == []
    supervisor.ended("master/0", 0, 2)
    supervisor.ended("worker/0", 0, 2)
    assert supervisor.outcome is not None
    assert supervisor.outcome.exit_code == 0


def test_a_ps_that_leaves_while_the_job_goes_on_is_a_failure() -> None:
    supervisor = running(*ALL)
    supervisor.ended("ps/0", 0, 1)
    assert supervisor.tick(10.9) == []
    assert notes(supervisor.tick(11)) == [
        "ps/0 on node0 failed: ended by itself while the job was running; stopping the others"
    ]


def test_a_master_may_evaluate_for_long_after_its_ps_have_left() -> None:
    supervisor = running(*ALL)
    supervisor.heard(1, stepped=True)
    supervisor.ended("worker/0", 0, 1)
    supervisor.ended("ps/0", 0, 2)
    assert supervisor.tick(40) == []
    supervisor.ended("master/0", 0, 45)
    assert supervisor.outcome is not None
    assert supervisor.outcome.exit_code == 0


def test_a_master_that_falls_silent_without_its_ps_is_the_pss_failure() -> None:
    supervisor = running("master/0", "ps/0")
    supervisor.heard(1, stepped=True)
    supervisor.ended("ps/0", 0, 2)
    assert notes(supervisor.tick(52)) == [
        "ps/0 on node0 failed: ended by itself while the job was running; stopping the others"
    ]


def test_a_ps_that_left_is_missed_while_any_worker_goes_on() -> None:
    supervisor = running("master/0", "worker/0", "worker/1", "ps/0")
    supervisor.ended("worker/0", 0, 1)
    supervisor.ended("ps/0", 0, 1)
    assert notes(supervisor.tick(11)) == [
        "ps/0 on node0 failed: ended by itself while the job was running; stopping the others"
    ]


def test_a_failure_after_a_ps_has_left_is_the_pss() -> None:
    supervisor = running(*ALL)
    supervisor.ended("ps/0", 0, 1)
    assert notes(supervisor.ended("worker/0", 1, 2)) == [
        "ps/0 on node0 failed: ended by itself while the job was running; stopping the others"
    ]
    supervisor.ended("master/0", 143, 3)
    assert supervisor.outcome is not None
    assert supervisor.outcome.task == "ps/0"


def test_a_ps_that_left_is_started_again_if_it_may_be() -> None:
    supervisor = running(*ALL, restarts=1)
    supervisor.ended("ps/0", 0, 1)
    assert notes(supervisor.tick(11)) == [
        "ps/0 on node0: ended by itself while the job was running; restart 1 of 1 in 1 s"
    ]
    assert starts(supervisor.tick(12)) == ["ps/0"]


def test_a_failed_task_leaves_the_others_the_time_to_save_and_the_ps_a_moment() -> None:
    supervisor = running(*ALL)
    supervisor.ended("worker/0", 1, 10)
    assert supervisor.states["worker/0"].status == "failed"
    assert supervisor.tick(29.9) == []
    assert signals(supervisor.tick(30)) == [("master/0", signal.SIGKILL)]
    assert signals(supervisor.ended("master/0", -9, 31)) == [("ps/0", signal.SIGTERM)]
    assert supervisor.tick(35.9) == []
    assert signals(supervisor.tick(36)) == [("ps/0", signal.SIGKILL)]


def test_nobody_is_given_the_time_to_save_without_a_ps() -> None:
    supervisor = running(*ALL)
    assert signals(supervisor.ended("ps/0", 1, 10)) == [("master/0", signal.SIGTERM)]
    assert supervisor.tick(14.9) == []
    assert signals(supervisor.tick(15)) == [("master/0", signal.SIGKILL)]


def test_a_chief_is_a_lead_and_an_evaluator_ends_with_the_workers() -> None:
    supervisor = running("chief/0", "evaluator/0", "ps/0")
    assert signals(supervisor.stop(2, 1)) == [("chief/0", signal.SIGTERM)]
    assert signals(supervisor.ended("chief/0", 143, 2)) == [("evaluator/0", signal.SIGTERM)]
    assert signals(supervisor.ended("evaluator/0", 143, 3)) == [("ps/0", signal.SIGTERM)]


def test_an_evaluator_is_waited_for_when_the_lead_is_done() -> None:
    supervisor = running("chief/0", "evaluator/0", "ps/0")
    assert signals(supervisor.ended("chief/0", 0, 1)) == []
    assert signals(supervisor.tick(11)) == [("evaluator/0", signal.SIGTERM)]


def test_what_has_no_process_ends_with_the_job() -> None:
    supervisor = running("master/0", "worker/0", "ps/0", restarts=1)
    supervisor.ended("worker/0", 1, 1)
    supervisor.ended("ps/0", 0, 1.5)
    assert [state.status for state in supervisor.states.values()] == [
        "running",
        "restarting",
        "quit",
    ]
    supervisor.ended("master/0", 0, 1.7)
    assert [state.status for state in supervisor.states.values()] == ["ended"] * 3


def test_a_job_that_is_stopped_before_it_starts_is_over() -> None:
    supervisor = Supervisor([task("master")], LIMITS, 0, 0)
    assert supervisor.states["master/0"].status == "waiting"
    assert supervisor.stop(2, 0) == []
    assert supervisor.states["master/0"].status == "ended"
    assert supervisor.outcome is not None


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
    assert supervisor.outcome is None
    supervisor.ended("ps/0", -15, 4)
    assert supervisor.outcome is not None
    assert supervisor.outcome.exit_code == 3
    assert supervisor.outcome.task == "worker/1"
    assert supervisor.outcome.reason == "worker/1 on node0 failed: exit code 3"


@pytest.mark.parametrize(("code", "exit_code"), [(3, 3), (-9, 137), (-15, 143), (None, 1)])
def test_the_exit_code_is_that_of_the_first_failure(code: Optional[int], exit_code: int) -> None:
    supervisor = running("master/0", "worker/0")
    supervisor.ended("worker/0", code, 1)
    supervisor.ended("master/0", 1, 2)
    supervisor.tick(3)
    assert supervisor.outcome is not None
    assert supervisor.outcome.exit_code == exit_code


def word_of_the_platform(supervisor: Supervisor, now: float) -> list[Action]:
    return supervisor.stop(signal.SIGTERM, now, "node0: the agent got SIGTERM", Cause.PLATFORM)


def test_a_ps_that_the_platform_ended_does_not_cost_the_master_its_time_to_save() -> None:
    supervisor = running(*ALL)
    assert signals(supervisor.ended("ps/0", -15, 10)) == [("master/0", signal.SIGTERM)]
    assert signals(word_of_the_platform(supervisor, 10.1)) == []
    assert signals(supervisor.tick(29.9)) == []
    supervisor.ended("master/0", 143, 29.95)
    supervisor.ended("worker/0", 143, 29.95)
    assert supervisor.outcome is not None
    assert supervisor.outcome.cause is Cause.PLATFORM
    assert supervisor.outcome.exit_code == 143
    assert supervisor.outcome.reason == "node0: the agent got SIGTERM"
    assert supervisor.states["ps/0"].status == "failed"


def test_the_platforms_word_is_waited_for_when_a_sigterm_has_ended_the_last_task() -> None:
    supervisor = running("master/0")
    supervisor.ended("master/0", -15, 10)
    assert supervisor.tick(10.5) == []
    assert supervisor.outcome is None
    word_of_the_platform(supervisor, 10.6)
    assert supervisor.outcome is not None
    assert supervisor.outcome.cause is Cause.PLATFORM


def test_a_sigterm_that_nobody_explains_is_the_tasks_failure() -> None:
    supervisor = running("master/0")
    supervisor.ended("master/0", -15, 10)
    supervisor.tick(12)
    assert supervisor.outcome is not None
    assert supervisor.outcome.reason == "master/0 on node0 failed: killed by SIGTERM"


def test_the_master_that_was_killed_is_named_though_word_of_its_worker_came_first() -> None:
    supervisor = running(*ALL)
    assert signals(supervisor.ended("worker/0", 1, 10)) == [("master/0", signal.SIGTERM)]
    assert notes(supervisor.ended("master/0", -9, 10.3)) == [
        "master/0 on node0 failed: killed by SIGKILL"
    ]
    supervisor.ended("ps/0", -15, 11)
    assert supervisor.outcome is not None
    assert (supervisor.outcome.exit_code, supervisor.outcome.task) == (137, "master/0")
    assert {name: state.status for name, state in supervisor.states.items()} == {
        "master/0": "failed",
        "worker/0": "failed",
        "ps/0": "ended",
    }


@pytest.mark.parametrize("code", [143, -15, 1])
def test_the_end_of_a_task_that_this_launcher_has_signalled_says_nothing(code: int) -> None:
    supervisor = running(*ALL)
    supervisor.ended("worker/0", 3, 10)
    assert notes(supervisor.ended("master/0", code, 10.5)) == []
    supervisor.ended("ps/0", -15, 11)
    assert supervisor.outcome is not None
    assert (supervisor.outcome.exit_code, supervisor.outcome.task) == (3, "worker/0")
    assert supervisor.states["master/0"].status == "ended"


def test_a_signal_that_came_too_late_to_the_host_explains_nothing() -> None:
    supervisor = running(*ALL)
    supervisor.ended("worker/0", 1, 10)
    supervisor.ended("master/0", 143, 10.5, signals=())
    supervisor.ended("ps/0", -15, 11, signals=[15])
    assert supervisor.states["master/0"].status == "failed"
    assert supervisor.tick(12) == []
    assert supervisor.outcome is not None
    assert (supervisor.outcome.exit_code, supervisor.outcome.task) == (143, "master/0")


def test_a_master_that_was_done_before_its_worker_failed_is_a_success() -> None:
    supervisor = running("master/0", "worker/0", "worker/1", "ps/0")
    assert signals(supervisor.ended("worker/0", 1, 10)) == [("master/0", signal.SIGTERM)]
    assert signals(supervisor.ended("master/0", 0, 10.1, signals=())) == []
    assert signals(supervisor.tick(20)) == []
    assert signals(supervisor.ended("worker/1", 0, 20.05)) == [("ps/0", signal.SIGTERM)]
    supervisor.ended("ps/0", -15, 21)
    assert supervisor.outcome is not None
    assert supervisor.outcome.exit_code == 0
    assert supervisor.states["worker/0"].status == "failed"


def test_a_master_that_ends_with_0_because_it_was_asked_to_is_not_done() -> None:
    supervisor = running("master/0")
    supervisor.stop(signal.SIGINT, 1)
    supervisor.ended("master/0", 0, 1.5)
    assert supervisor.outcome is not None
    assert supervisor.outcome.reason == "stopped by SIGINT"


def test_a_sigterm_to_the_launcher_is_the_platforms_if_the_platform_says_so_too() -> None:
    supervisor = running(*ALL)
    assert signals(supervisor.stop(signal.SIGTERM, 10)) == [("master/0", signal.SIGTERM)]
    assert word_of_the_platform(supervisor, 10.2) == []
    # So the user's first signal still lets the tasks save.
    assert supervisor.stop(signal.SIGINT, 15) == []
    assert ("master/0", signal.SIGKILL) in signals(supervisor.stop(signal.SIGINT, 16))
    for name in ALL:
        supervisor.ended(name, -9, 17)
    assert supervisor.outcome is not None
    assert supervisor.outcome.cause is Cause.PLATFORM


def test_words_of_several_agents_are_one() -> None:
    supervisor = running(*ALL)
    assert signals(word_of_the_platform(supervisor, 10)) == [("master/0", signal.SIGTERM)]
    assert word_of_the_platform(supervisor, 10) == []
    assert word_of_the_platform(supervisor, 15) == []


def test_a_stop_after_a_time_limit_does_not_hide_it() -> None:
    supervisor = running("master/0")
    supervisor.tick(101)
    supervisor.stop(signal.SIGINT, 101.5)
    supervisor.ended("master/0", 143, 102)
    assert supervisor.outcome is not None
    assert supervisor.outcome.exit_code == 124


def test_a_stop_in_the_grace_after_a_success_ends_the_others_now_and_stays_a_success() -> None:
    supervisor = running(*ALL)
    supervisor.ended("master/0", 0, 1)
    assert signals(supervisor.stop(signal.SIGINT, 2)) == [("worker/0", signal.SIGTERM)]
    supervisor.ended("worker/0", 143, 3)
    supervisor.ended("ps/0", 143, 4)
    assert supervisor.outcome is not None
    assert supervisor.outcome.exit_code == 0


def test_a_third_signal_does_not_lengthen_the_end() -> None:
    supervisor = running("master/0")
    for now in (1, 2, 11):
        supervisor.stop(signal.SIGINT, now)
    supervisor.tick(12)
    assert supervisor.outcome is not None


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


def test_a_host_that_stays_away_uses_up_the_restarts() -> None:
    supervisor = running("master/0", "worker/0", restarts=2)
    supervisor.ended("worker/0", None, 0, "lost")
    assert starts(supervisor.tick(1)) == ["worker/0"]
    supervisor.ended("worker/0", None, 2, "unreachable")
    assert starts(supervisor.tick(4)) == ["worker/0"]
    supervisor.ended("worker/0", None, 5, "unreachable")
    assert supervisor.ending


def test_a_stop_is_orderly_and_a_second_one_is_not() -> None:
    supervisor = running(*ALL)
    assert signals(supervisor.stop(2, 1)) == [("master/0", signal.SIGTERM)]
    assert signals(supervisor.stop(2, 2)) == [(name, signal.SIGKILL) for name in ALL]
    for name in ALL:
        supervisor.ended(name, -9, 3)
    assert supervisor.outcome is not None
    assert supervisor.outcome.exit_code == 130
    assert supervisor.outcome.reason == "stopped by SIGINT"


def test_a_stop_may_have_a_reason_in_words() -> None:
    supervisor = running("master/0")
    supervisor.stop(15, 1, "the terminal is gone")
    supervisor.ended("master/0", 143, 2)
    assert supervisor.outcome is not None
    assert supervisor.outcome.reason == "the terminal is gone"


def test_a_stop_during_a_failure_does_not_ask_twice() -> None:
    supervisor = running(*ALL)
    supervisor.ended("worker/0", 3, 1)
    assert supervisor.stop(2, 2) == []
    assert ("master/0", signal.SIGKILL) in signals(supervisor.stop(2, 3))


def test_no_restart_once_the_end_has_begun() -> None:
    supervisor = running(*ALL, restarts=5)
    supervisor.ended("worker/0", 1, 1)
    supervisor.stop(15, 1.5)
    assert starts(supervisor.tick(5)) == []


def test_a_start_without_a_step_is_timed_out() -> None:
    supervisor = running(*ALL)
    supervisor.heard(99, stepped=False)
    assert supervisor.tick(100) == []
    assert notes(supervisor.tick(101)) == ["no training step within 100 s; stopping"]
    assert signals(supervisor.ended("master/0", 143, 102)) == [("worker/0", signal.SIGTERM)]
    supervisor.ended("worker/0", 143, 103)
    supervisor.ended("ps/0", -15, 104)
    assert supervisor.outcome is not None
    assert supervisor.outcome.exit_code == 124
    assert supervisor.outcome.reason == (
        "no training step within 100 s; the limits are start_secs and idle_secs"
    )


def test_the_time_for_the_first_step_counts_from_the_start_of_the_job() -> None:
    supervisor = Supervisor([task("master")], LIMITS, 0, 1000)
    supervisor.start()
    supervisor.started("master/0")
    assert supervisor.tick(1100) == []
    assert notes(supervisor.tick(1101)) == ["no training step within 100 s; stopping"]


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
    assert supervisor.outcome is not None


def test_an_outcome_has_its_cause() -> None:
    causes = {}
    done = running("master/0")
    done.ended("master/0", 0, 1)
    causes["done"] = done.outcome
    failed = running("master/0")
    failed.ended("master/0", 3, 1)
    causes["failed"] = failed.outcome
    lost = running("master/0")
    lost.ended("master/0", None, 1, "no word from it", Cause.HOST_LOST)
    causes["lost"] = lost.outcome
    stopped = running("master/0")
    stopped.stop(signal.SIGINT, 1)
    stopped.ended("master/0", 130, 2)
    causes["stopped"] = stopped.outcome
    told = running("master/0")
    told.stop(signal.SIGTERM, 1, "node0: it was asked to end", Cause.PLATFORM)
    told.ended("master/0", 143, 2)
    causes["told"] = told.outcome
    late = running("master/0")
    late.tick(101)
    late.ended("master/0", 143, 102)
    causes["late"] = late.outcome
    assert {name: outcome and outcome.cause for name, outcome in causes.items()} == {
        "done": Cause.DONE,
        "failed": Cause.TASK_FAILED,
        "lost": Cause.HOST_LOST,
        "stopped": Cause.USER,
        "told": Cause.PLATFORM,
        "late": Cause.TIME_LIMIT,
    }
