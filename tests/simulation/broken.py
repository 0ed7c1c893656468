"""Machines that are broken on purpose, each of which must break an invariant of the simulation."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from launch.agent import logs, processes
from launch.agent.main import Agent
from launch.agent.tasks import Tasks
from launch.backends.slurm import commands
from launch.backends.slurm.commands import JobState
from launch.backends.slurm.follow import Follower
from launch.backends.slurm.pursuit import Pursuit, Request
from launch.supervise import ending, supervisor
from launch.supervise.agents import Agents
from launch.supervise.ending import Ending, _ask_then_kill, _Stage
from launch.supervise.settling import Settling
from launch.supervise.supervisor import Supervisor

Break = Callable[[pytest.MonkeyPatch], None]


def starts_after_the_end(patch: pytest.MonkeyPatch) -> None:
    """Leaves the orders that wait for a host where they are."""
    patch.setattr(Agents, "_withdraw_starts", lambda self: None)


def restarts_after_the_end(patch: pytest.MonkeyPatch) -> None:
    """Restarts a task that fails while the job ends."""
    fail = Supervisor._fail

    def restarts(self: Supervisor, state: Any, now: float) -> Any:
        return [self._start(state)] if self.ending else fail(self, state, now)

    patch.setattr(Supervisor, "_fail", restarts)


def kills_at_once(patch: pytest.MonkeyPatch) -> None:
    """Asks nobody before it kills."""
    patch.setattr(ending, "_ask_then_kill", lambda tasks, secs, saves=False: [_Stage(tasks, 9, 5)])


def kills_too_early(patch: pytest.MonkeyPatch) -> None:
    """Leaves half of the time to save."""
    ask = _ask_then_kill
    patch.setattr(
        ending, "_ask_then_kill", lambda tasks, secs, saves=False: ask(tasks, secs / 2, saves=saves)
    )


def forgets_the_time_to_save(patch: pytest.MonkeyPatch) -> None:
    """Leaves a master 5 s after the platform has ended a ps."""
    patch.setattr(Ending, "allow", lambda self, secs: None)


def gives_no_grace(patch: pytest.MonkeyPatch) -> None:
    """Asks an evaluator to end as soon as the lead is done."""
    after = Ending.after_the_lead.__func__  # type: ignore[attr-defined]
    patch.setattr(
        Ending,
        "after_the_lead",
        classmethod(lambda cls, names, grace, stop: after(cls, names, 0.0, stop)),
    )


def waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Kills nobody who ignores SIGTERM."""
    patch.setattr(
        ending,
        "_ask_then_kill",
        lambda tasks, secs, saves=False: [_Stage(tasks, 15, math.inf, saves)],
    )


def names_only_the_first(patch: pytest.MonkeyPatch) -> None:
    """Says nothing of a task that fails while the job ends."""
    fail = Supervisor._fail
    patch.setattr(
        Supervisor,
        "_fail",
        lambda self, state, now: [] if self.ending else fail(self, state, now),
    )


def believes_the_first_report(patch: pytest.MonkeyPatch) -> None:
    """Lets no report replace the first one."""
    report = Settling.report
    patch.setattr(
        Settling,
        "report",
        lambda self, outcome, now: self.verdict is None and report(self, outcome, now),
    )


def believes_the_last_report(patch: pytest.MonkeyPatch) -> None:
    """Never settles."""
    patch.setattr(Settling, "is_settled", lambda self, now: False)


def takes_its_own_signals_for_failures(patch: pytest.MonkeyPatch) -> None:
    """Counts the ends of tasks that the launcher has signalled."""
    patch.setattr(supervisor, "ended_by_itself", lambda code, signals: True)


def agents_stay(patch: pytest.MonkeyPatch) -> None:
    """Keeps the tasks when the launcher is gone."""
    patch.setattr(Agent, "_look_at_the_clock", lambda self: None)


def agents_kill_orphans(patch: pytest.MonkeyPatch) -> None:
    """Kills the tasks as soon as the launcher is gone."""
    look = Agent._look_at_the_clock

    def kills(self: Agent) -> None:
        look(self)
        if self._orphaned is not None:
            for task in self._tasks.running:
                task.send(9)

    patch.setattr(Agent, "_look_at_the_clock", kills)


def agents_end_what_others_have_started(patch: pytest.MonkeyPatch) -> None:
    """Takes all processes of the run's task for those that the agent itself has started."""
    patch.setattr(Tasks, "_own_marks", lambda self: {processes.RUN: self._run_id})


def agents_do_not_ask_the_ps(patch: pytest.MonkeyPatch) -> None:
    """Ends the ps at a fixed time, also on a machine that stood still until then."""
    look = Agent._look_at_the_clock

    def ends(self: Agent) -> None:
        late = self._orphan_secs + 2
        if self._orphaned is not None and self._machine.now() > self._orphaned + late:
            self._end()
        else:
            look(self)

    patch.setattr(Agent, "_look_at_the_clock", ends)


def agents_hold_who_is_to_end(patch: pytest.MonkeyPatch) -> None:
    """Does not read the output of a task that is to end while its log is behind."""
    patch.setattr(logs, "_must_wait", lambda task: task.log.is_behind)


def agents_report_an_end_after_its_log(patch: pytest.MonkeyPatch) -> None:
    """Tells of the end of a task once its log is written."""
    take_end = Tasks._take_end

    def waits(self: Tasks, task: Any, code: int) -> None:
        if task.log.wait(0):
            take_end(self, task, code)
        else:
            task.host.later(0.5, task.machine.zombies.append, task)

    patch.setattr(Tasks, "_take_end", waits)


def slurm_status_is_replaced(patch: pytest.MonkeyPatch) -> None:
    """Does not look whether the job has written its status since it was known to wait."""
    patch.setattr(Follower, "_has_written", lambda self: False)


def slurm_stop_forgets_a_requeue(patch: pytest.MonkeyPatch) -> None:
    """Makes each request once, whatever becomes of the job."""
    due = Pursuit.due

    def once(self: Pursuit, state: JobState, now: float, *, has_written: bool = False) -> Any:
        made = vars(self).setdefault("made", [])
        request = due(self, state, now) if len(made) < self.wish else None
        made += [request] * (request is not None)
        return request

    patch.setattr(Pursuit, "due", once)


def slurm_stop_cancels(patch: pytest.MonkeyPatch) -> None:
    """Cancels also a job that runs."""
    due = Pursuit.due

    def cancels(self: Pursuit, state: JobState, now: float, *, has_written: bool = False) -> Any:
        return due(self, state, now) and Request.CANCEL

    patch.setattr(Pursuit, "due", cancels)


def slurm_hangup_stops(patch: pytest.MonkeyPatch) -> None:
    """Stops the job when the terminal is lost."""
    left = Follower._left

    def stops(self: Follower) -> Any:
        commands.ask_to_end("7")
        return left(self)

    patch.setattr(Follower, "_left", stops)


# What is broken -> words of the invariant that it breaks in jobs of Slurm.
BROKEN_IN_SLURM: dict[Break, str] = {
    slurm_status_is_replaced: "the status of a job that has started is kept",
    slurm_stop_forgets_a_requeue: "a stop ends the job soon",
    slurm_stop_cancels: "a job that runs may save at the first signals",
    slurm_hangup_stops: "a lost terminal leaves the job alone",
}

# What is broken -> words of the invariant that it breaks.
BROKEN: dict[Break, str] = {
    starts_after_the_end: "nothing is started after the end begins",
    restarts_after_the_end: "nothing is started after the end begins",
    kills_at_once: "SIGTERM comes before SIGKILL",
    kills_too_early: "a task has its time to save",
    forgets_the_time_to_save: "a task has its time to save",
    gives_no_grace: "nobody is signalled in the grace after a success",
    waits_for_ever: "the job ends within its limits",
    names_only_the_first: "every task that failed by itself is named",
    believes_the_first_report: "the exit code is the first cause's",
    believes_the_last_report: "the exit code is the first cause's",
    takes_its_own_signals_for_failures: "the exit code is the first cause's",
    agents_stay: "no task is left after the end",
    agents_kill_orphans: "SIGTERM comes before SIGKILL",
    agents_end_what_others_have_started: "the exit code is the first cause's",
    agents_hold_who_is_to_end: "a task that is to end can write",
    agents_report_an_end_after_its_log: "the end of a task is told at once",
    agents_do_not_ask_the_ps: "SIGTERM comes before SIGKILL",
}
