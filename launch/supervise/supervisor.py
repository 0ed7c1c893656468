"""Decides which tasks of a job to start, signal or give up, and when the job is over.

The supervisor's methods take an event and the time, and return actions, which
`launch.supervise.run` carries out. They change nothing but the supervisor itself.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional, Union

from launch.cluster.model import Limits
from launch.cluster.tasks import Task
from launch.record.outcome import Cause, Outcome, exit_code_of, words_for
from launch.supervise.progress_watch import ProgressWatch

_KILL_SECS = 5.0  # after SIGKILL, for the kernel and for the connection to the host
_LONGEST_BACKOFF_SECS = 30.0
_USERS_MISTAKE = 2  # the exit code for errors of the user, which a restart would only repeat


@dataclass(frozen=True)
class Start:
    """The action that starts a task."""

    task: str


@dataclass(frozen=True)
class Signal:
    """The action that sends a signal to a task."""

    task: str
    signum: int


@dataclass(frozen=True)
class Note:
    """The action that shows a line of text to the user."""

    text: str


Action = Union[Start, Signal, Note]


@dataclass
class TaskState:
    """The state of one task.

    Attributes:
      task: the task.
      status: waiting, starting, running, restarting, ended, failed, or quit: a ps that ended by
        itself without an error, as it does at the end of training.
      restarts: how often the task was restarted.
      due: the time of the next restart, or the end of the grace period of a ps that has quit.
      code: the last exit code, -n for signal n; None if there is none.
      last: why the task ended or waits, in words; "" if neither is known.
      cause: the cause of the task's last end, if that was a failure.
    """

    task: Task
    status: str = "waiting"
    restarts: int = 0
    due: float = 0.0
    code: Optional[int] = None
    last: str = ""
    cause: Cause = Cause.TASK_FAILED

    @property
    def alive(self) -> bool:
        """Whether the task may have a process."""
        return self.status in ("starting", "running")


@dataclass
class _Stage:
    """A stage of the job's end: the tasks that are to end next.

    Attributes:
      tasks: the names of the tasks.
      signum: the signal to send to the tasks; None if they end by themselves.
      secs: the seconds that the tasks have to end; those left are for the next stage.
      why: words to tell the user about the tasks that get the signal; "" to say nothing.
      since: the time at which the stage began; None before.
    """

    tasks: Sequence[str]
    signum: Optional[int]
    secs: float
    why: str = ""
    since: Optional[float] = None


def _ask_then_kill(tasks: Sequence[str], secs: float) -> list[_Stage]:
    return [
        _Stage(tasks, signal.SIGTERM, secs),
        _Stage(tasks, signal.SIGKILL, _KILL_SECS, "did not end in time: killed"),
    ]


class Supervisor:
    """Decides how one job continues and ends.

    Args:
      tasks: all tasks of the job.
      limits: the job's time limits.
      restarts: how often each task may be restarted.
      now: the time at which the job starts, in seconds, on the same clock as all later times.

    Attributes:
      states: task's name -> its state.
      outcome: how the job ended; None until it is over.
    """

    def __init__(self, tasks: Sequence[Task], limits: Limits, restarts: int, now: float) -> None:
        self.states = {task.name: TaskState(task) for task in tasks}
        self.outcome: Optional[Outcome] = None
        self._limits = limits
        self._restarts = restarts
        self._progress = ProgressWatch(limits, now)
        self._stages: Optional[list[_Stage]] = None
        self._verdict: Optional[Outcome] = None
        self._stop_signals = 0

    @property
    def ending(self) -> bool:
        """Whether the job is ending."""
        return self._stages is not None

    def start(self) -> list[Action]:
        """Starts all tasks, the ps first."""
        order = sorted(self.states.values(), key=lambda state: state.task.task_type != "ps")
        return [self._start(state) for state in order]

    def started(self, name: str) -> None:
        """Records that a task has a process."""
        if self.states[name].status == "starting":
            self.states[name].status = "running"

    def heard(self, now: float, *, stepped: bool) -> None:
        """Records that a task wrote lines; `stepped` is whether one reported a training step."""
        self._progress.heard(now, stepped=stepped)

    def ended(
        self,
        name: str,
        code: Optional[int],
        now: float,
        reason: str = "",
        cause: Cause = Cause.TASK_FAILED,
    ) -> list[Action]:
        """Records that a task has ended, and decides what to do.

        Args:
          name: the task's name.
          code: the exit code, -n for signal n; None if the task was lost or could not be started.
          now: the time.
          reason: why the task ended, in words; "" if its exit code says it.
          cause: the cause of the job's end, if this failure ends it.
        """
        state = self.states[name]
        if not state.alive:
            return []
        has_run = state.status == "running" or state.restarts > 0
        state.status, state.code = "ended", code
        state.last, state.cause = reason or words_for(code), cause
        if self.ending:
            return [*self._late_failure(state), *self._advance(now)]
        if code == 0 and state.task.is_lead:
            self._verdict = Outcome(0, f"{name} is done", cause=Cause.DONE)
            return self._end_after_the_lead(now)
        if code == 0 and state.task.task_type != "ps":
            return [Note(f"{name} is done")]
        if code == 0:
            # At the end of training, ps and workers end; the master may evaluate for long.
            state.status, state.due = "quit", now + self._limits.grace_secs
            return []
        return [*self._judge_quitters(now, late=True), *self._restart_or_fail(state, now, has_run)]

    def _late_failure(self, state: TaskState) -> list[Action]:
        """Reports a task that failed by itself after the lead has ended with success."""
        done = self._verdict is not None and self._verdict.exit_code == 0
        if state.code == 0 or not done or not self._stages or self._stages[0].signum is not None:
            return []
        return [Note(f"{state.task.name} on {state.task.host.name}: {state.last}; see its log")]

    def _judge_quitters(self, now: float, *, late: bool = False) -> list[Action]:
        """Counts a ps that ended by itself as failed, if training goes on without it.

        A worker that still runs after the grace period shows that training goes on. A master alone
        does not: it may be busy with the last evaluation.

        Args:
          now: the time.
          late: whether not to wait for the grace period, because a failure or an exceeded limit
            shows that the ps is missing.
        """
        actions: list[Action] = []
        working = any(self.states[name].alive for name in self._names("worker"))
        for state in self.states.values():
            overdue = late or (working and now >= state.due)
            if state.status == "quit" and overdue and not self.ending:
                state.status = "ended"
                state.last = "ended by itself while the job was running"
                actions += self._restart_or_fail(state, now, True)
        return actions

    def _restart_or_fail(self, state: TaskState, now: float, has_run: bool) -> list[Action]:
        if self.ending:
            return []
        # A task that never ran would only fail again in the same way.
        can_restart = has_run and state.code != _USERS_MISTAKE and state.restarts < self._restarts
        return [self._restart_later(state, now)] if can_restart else self._fail(state, now)

    def stop(
        self, signum: int, now: float, reason: str = "", cause: Cause = Cause.USER
    ) -> list[Action]:
        """Ends the job in order; at the second call, kills all tasks.

        If the job is already ending after a failure, the first call changes nothing.

        Args:
          signum: the signal that asked for the end.
          now: the time.
          reason: why the job ends, in words; "" if the signal's name says it.
          cause: the cause of the job's end.
        """
        self._stop_signals += 1
        if self._stop_signals == 1:
            if self._verdict is not None and self._verdict.exit_code:
                return []  # the job ends already; a second signal would keep tasks from saving
            words = reason or f"stopped by {signal.Signals(signum).name}"
            self._verdict = Outcome(128 + signum, words, cause=cause)
            return self._stop_all(self._limits.stop_secs, now)
        self._stages = [_Stage(list(self.states), signal.SIGKILL, 2 * _KILL_SECS)]
        return self._advance(now)

    def tick(self, now: float) -> list[Action]:
        """Decides what is due at the time `now`: restarts, time limits and stages of the end."""
        if self.ending:
            return self._advance(now)
        overdue = self._progress.overdue(now)
        if overdue is not None:
            return self._time_out(overdue, now)
        quitters = self._judge_quitters(now)
        due = [s for s in self.states.values() if s.status == "restarting" and now >= s.due]
        return [*quitters, *(self._start(state) for state in due)]

    def _start(self, state: TaskState) -> Action:
        state.status, state.last = "starting", ""
        return Start(state.task.name)

    def _restart_later(self, state: TaskState, now: float) -> Action:
        wait = min(2.0**state.restarts, _LONGEST_BACKOFF_SECS)
        state.restarts += 1
        state.status, state.due = "restarting", now + wait
        return Note(
            f"{state.task.name} on {state.task.host.name}: {state.last}; restart "
            f"{state.restarts} of {self._restarts} in {wait:g} s"
        )

    def _fail(self, state: TaskState, now: float) -> list[Action]:
        again = f", after {state.restarts} restarts" if state.restarts else ""
        name, host = state.task.name, state.task.host.name
        state.status = "failed"
        self._verdict = Outcome(
            exit_code_of(state.code),
            f"{name} on {host} failed: {state.last}{again}",
            name,
            cause=state.cause,
        )
        # Without a ps the others cannot save, so they get only a short time to end.
        saves = state.task.task_type != "ps"
        return [
            Note(f"{self._verdict.reason}; stopping the others"),
            *self._stop_all(self._limits.stop_secs if saves else _KILL_SECS, now),
        ]

    def _time_out(self, reason: str, now: float) -> list[Action]:
        quitters = self._judge_quitters(now, late=True)
        if quitters:
            return quitters
        words = f"{reason}; the limits are start_secs and idle_secs"
        self._verdict = Outcome(124, words, cause=Cause.TIME_LIMIT)
        return [Note(f"{reason}; stopping"), *self._stop_all(self._limits.stop_secs, now)]

    def _stop_all(self, secs: float, now: float) -> list[Action]:
        """Ends the lead first, so that it saves while the others still run, and the ps last."""
        self._stages = [
            *_ask_then_kill(self._names("master", "chief"), secs),
            *_ask_then_kill(self._names("worker", "evaluator"), secs),
            *_ask_then_kill(self._names("ps"), min(secs, _KILL_SECS)),
        ]
        return self._advance(now)

    def _end_after_the_lead(self, now: float) -> list[Action]:
        others = self._names("worker", "evaluator")
        self._stages = [
            _Stage(others, None, self._limits.grace_secs),
            *_ask_then_kill(others, self._limits.stop_secs),
            *_ask_then_kill(self._names("ps"), _KILL_SECS),
        ]
        return self._advance(now)

    def _names(self, *task_types: str) -> list[str]:
        return [name for name, s in self.states.items() if s.task.task_type in task_types]

    def _advance(self, now: float) -> list[Action]:
        """Starts the stages of the end, up to the first one whose tasks still run."""
        actions: list[Action] = []
        for state in self.states.values():
            if state.status in ("waiting", "restarting", "quit"):
                state.status = "ended"
        while self._stages:
            stage = self._stages[0]
            alive = [name for name in stage.tasks if self.states[name].alive]
            if stage.since is None:
                stage.since = now
                if stage.signum is not None:
                    actions += [Signal(name, stage.signum) for name in alive]
                if alive and stage.why:
                    actions.append(Note(f"{', '.join(alive)} {stage.why}"))
            if alive and now < stage.since + stage.secs:
                return actions
            if alive and stage.signum == signal.SIGKILL:
                actions.append(Note(f"{', '.join(alive)}: end not confirmed; run `clean`"))
            self._stages.pop(0)
        self.outcome = self._verdict
        return actions
