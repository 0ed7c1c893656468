"""Decides which tasks of a job to start, signal or give up, and when the job is over.

The supervisor's methods take an event and the time, and return actions, which
`launch.supervise.run` carries out. They change nothing but the supervisor itself.

One failure causes others: a parameter server that ends makes its trainers fail, and a platform that
stops everything may report it after its first victims have ended. So the first report decides only
that the job ends. For a moment, later reports may replace its cause and its words, by their rank.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional, Union

from launch.cluster.model import CHIEFS, Limits
from launch.cluster.tasks import Task
from launch.record.result import ExitReason, Result, exit_code_of, words_for
from launch.supervise.task_state import TaskState

_LONGEST_BACKOFF_SECS = 30.0
_USERS_MISTAKE = 2  # the exit code for errors of the user, which a restart would only repeat
KILL_SECS = 5.0  # after SIGKILL, for the kernel and for the connection to the host
SETTLE_SECS = 2.0


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
class Stage:
    """A stage of the end: the tasks that are to end next.

    Attributes:
      tasks: the names of the tasks.
      signum: the signal to send to the tasks; None if they end by themselves.
      secs: the seconds that the tasks have to end; those left are for the next stage.
      since: the time at which the stage began; None before.
    """

    tasks: Sequence[str]
    signum: Optional[int]
    secs: float
    since: Optional[float] = None


def ask_then_kill(tasks: Sequence[str], secs: float) -> list[Stage]:
    """Returns the stages that leave tasks `secs` seconds between SIGTERM and SIGKILL."""
    return [Stage(tasks, signal.SIGTERM, secs), Stage(tasks, signal.SIGKILL, KILL_SECS)]


_RANKS = {
    ExitReason.DONE: 0,  # before any of this launcher's signals reached the chief
    ExitReason.USER: 1,
    ExitReason.TIME_LIMIT: 1,  # by which the user has asked for the end beforehand
    ExitReason.CANCELLED: 2,
    ExitReason.PREEMPTED: 2,
    ExitReason.PLATFORM: 2,
    ExitReason.LAUNCHER: 2,
    ExitReason.HOST_LOST: 4,
}
_TERMINATED = 3  # SIGTERM to the launcher: by the user, or by a platform that says so, too
_BY_SIGNAL, _EXIT_CODE = 5, 6  # of a task


def rank(result: Result) -> int:
    """Returns how near to the first cause a report is that says this; the smallest is nearest."""
    if result.cause is ExitReason.USER and result.exit_code == 128 + signal.SIGTERM:
        return _TERMINATED
    if result.cause in _RANKS:
        return _RANKS[result.cause]
    return _BY_SIGNAL if result.exit_code > 128 else _EXIT_CODE


class Supervisor:
    """Decides how one job continues and ends.

    Args:
      tasks: all tasks of the job.
      limits: the job's time limits.
      restarts: how often each task may be restarted.
      now: the time at which the job starts, in seconds, on the same clock as all later times.
      ps_secs: the seconds that a ps has to end, once all others have; at most `stop_secs`.

    Attributes:
      states: task's name -> its state.
      expected: how the job ends, as the reports so far show; None while it goes on.
      result: how the job ended; None until it is over.
      has_stepped: whether a task has reported a training step.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        limits: Limits,
        restarts: int,
        now: float,
        ps_secs: float = KILL_SECS,
    ) -> None:
        self.states = {task.name: TaskState(task) for task in tasks}
        self.expected: Optional[Result] = None
        self.result: Optional[Result] = None
        self.has_stepped = False
        self._limits, self._restarts = limits, restarts
        self._ps_secs = min(limits.stop_secs, ps_secs)
        self._began = self._heard = self._settled_at = now
        self._end: Optional[list[Stage]] = None  # what is left of it; None while the job goes on
        self._stop_signals = 0

    @property
    def ending(self) -> bool:
        """Whether the job is ending."""
        return self._end is not None

    def take_result(self, result: Result, now: float) -> bool:
        """Takes a report about the end of the job; returns whether it is now the expected.

        The first one begins the end. A report replaces the expected if it names a nearer cause
        within SETTLE_SECS of the first report; nothing replaces a success. Do not report the ends
        of tasks that this launcher has signalled: it caused them.
        """
        if self.expected is None:
            self._settled_at, self._end = now + SETTLE_SECS, self._in_order()
        elif now >= self._settled_at or rank(result) >= rank(self.expected):
            return False
        self.expected = result
        return True

    def start(self) -> list[Action]:
        """Starts all tasks, the ps first."""
        order = sorted(self.states.values(), key=lambda state: state.task.task_type != "ps")
        return [self._start(state) for state in order]

    def started(self, name: str) -> None:
        """Records that a task has a process."""
        state = self.states[name]
        if state.status == "starting":
            state.status, state.last = "running", ""

    def waits(self, name: str, words: str) -> bool:
        """Records why a task waits; returns whether that has another reason than before."""
        state = self.states[name]
        is_news = words.partition(":")[0] != state.last.partition(":")[0]
        state.last = words if is_news else state.last
        return is_news

    def resumed(self, name: str, restarts: int, step: str) -> None:
        """Records what an earlier launcher knew of a task."""
        self.states[name].restarts, self.states[name].step = restarts, step

    def starts_again(self, name: str) -> None:
        """Records that a task that is to be restarted starts without an order of this launcher."""
        if self.states[name].status == "restarting":
            self._start(self.states[name])

    def placed(self, name: str, host: str) -> None:
        """Records the host of a task that a scheduler has placed there."""
        state = self.states[name]
        state.task = replace(state.task, host=replace(state.task.host, name=host))

    def begins(self, now: float) -> None:
        """Counts `start_secs` from now on."""
        self._began = now

    def heard(self, now: float, *, stepped: bool) -> None:
        """Records that a task wrote lines; `stepped` is whether one reported a training step."""
        self._heard = now
        self.has_stepped = self.has_stepped or stepped

    def ended(
        self,
        name: str,
        code: Optional[int],
        now: float,
        reason: str = "",
        cause: ExitReason = ExitReason.TASK_FAILED,
        signals: Optional[Sequence[int]] = None,
        is_final: bool = False,
    ) -> list[Action]:
        """Records that a task has ended, and decides what to do.

        Args:
          name: the task's name.
          code: the exit code, -n for signal n; None if the task was lost or could not be started.
          now: the time.
          reason: why the task ended, in words; "" if its exit code says it.
          cause: the cause of the job's end, if this failure ends it.
          signals: the launcher's signals that the task got before its end; None if that is not
            known, so that all that were sent count.
          is_final: whether a restart is of no use, as on a host that cannot be reached.
        """
        state = self.states[name]
        if not state.alive:
            return []
        has_run = state.status == "running" or state.restarts > 0
        state.status, state.code = "ended", code
        state.last, state.cause = reason or words_for(code), cause
        sent = state.signals if signals is None else signals
        signum = 0 if code is None else -code if code < 0 else code - 128
        by_itself = code is None or not sent or (signum > 0 and signum not in sent)
        if code == 0 and state.task.is_chief and by_itself:
            done = Result(0, f"{name} is done", cause=ExitReason.DONE)
            # Unless the job's end has another cause that is settled.
            if self.take_result(done, now) and self._stop_signals < 2:
                self._end = self._in_order(is_done=True)
            return self._advance(now)
        if self.ending:
            late = self._fail(state, now) if by_itself and code != 0 else []
            return [*late, *self._advance(now)]
        if code == 0:  # at the end of training, all others end; the master may evaluate for long
            return [Note(f"{name} is done")]
        # A task that never ran would only fail again in the same way.
        can_restart = has_run and code != _USERS_MISTAKE and not is_final
        if not can_restart or state.restarts >= self._restarts:
            return self._fail(state, now)
        wait = min(2.0**state.restarts, _LONGEST_BACKOFF_SECS)
        state.status, state.due, state.restarts = "restarting", now + wait, state.restarts + 1
        again = f"restart {state.restarts} of {self._restarts} in {wait:g} s"
        return [Note(f"{name} on {state.task.host.name}: {state.last}; {again}")]

    def withdrawn(self, name: str, now: float) -> list[Action]:
        """Records that a task was not started, because the job has ended before it could be."""
        self.states[name].status = "ended"
        return self._advance(now)

    def stop(
        self, signum: int, now: float, reason: str = "", cause: ExitReason = ExitReason.USER
    ) -> list[Action]:
        """Ends the job in order; at the user's second call, kills all tasks.

        A SIGTERM is no call of the user if the platform says that it ends the job. If the job is
        already ending after a failure, the first call may change the expected, but sends no signal
        again: a second signal would keep tasks from saving.

        Args:
          signum: the signal that asked for the end.
          now: the time.
          reason: why the job ends, in words; "" if the signal's name says it.
          cause: the cause of the job's end; only the calls of the user are counted.
        """
        is_told = self.expected is not None and self.expected.cause is ExitReason.PLATFORM
        is_call = cause is ExitReason.USER and not (is_told and signum == signal.SIGTERM)
        self._stop_signals += is_call
        words = reason or f"stopped by {signal.Signals(signum).name}"
        exit_code = {ExitReason.TIME_LIMIT: 124, ExitReason.CANCELLED: 1}.get(cause, 128 + signum)
        is_done = self.expected is not None and self.expected.exit_code == 0
        took = self.take_result(Result(exit_code, words, cause=cause), now)
        # Every agent says so, but only the first word is news.
        is_news = took and cause is ExitReason.PLATFORM
        if is_news:  # then a SIGTERM that came before was its own
            self._stop_signals = 0
        if self._stop_signals == 2 and cause is ExitReason.USER:
            self._end = [Stage(list(self.states), signal.SIGKILL, 2 * KILL_SECS)]
        elif is_done and cause is ExitReason.USER and self._stop_signals == 1:
            self._end = self._in_order()
        news = [Note(f"{words}; stopping all tasks")] if is_news else []
        return [*news, *self._advance(now)]

    def tick(self, now: float) -> list[Action]:
        """Decides what is due at the time `now`: restarts, time limits and stages of the end."""
        if self.ending:
            return self._advance(now)
        overdue = self._overdue(now)
        if overdue is not None:
            words = f"{overdue}; the limits are start_secs and idle_secs"
            self.take_result(Result(124, words, cause=ExitReason.TIME_LIMIT), now)
            return [Note(f"{overdue}; stopping"), *self._advance(now)]
        due = [s for s in self.states.values() if s.status == "restarting" and now >= s.due]
        return [self._start(state) for state in due]

    def _overdue(self, now: float) -> Optional[str]:
        """Returns which limit is exceeded, in words; None if none is."""
        start_secs, idle_secs = self._limits.start_secs, self._limits.idle_secs
        if start_secs and not self.has_stepped and now > self._began + start_secs:
            return f"no training step within {start_secs:g} s"
        if idle_secs and self.has_stepped and now > self._heard + idle_secs:
            return f"no line from any task for {idle_secs:g} s"
        return None

    def _start(self, state: TaskState) -> Action:
        state.status, state.last, state.signals = "starting", "", ()
        return Start(state.task.name)

    def _fail(self, state: TaskState, now: float) -> list[Action]:
        """Names a task that has failed by itself; ends the job if it is not ending."""
        name, host = state.task.name, state.task.host.name
        state.status = "failed"
        again = f", after {state.restarts} restarts" if state.restarts else ""
        reason = f"{name} on {host} failed: {state.last}{again}"
        is_first = self.expected is None
        result = Result(exit_code_of(state.code), reason, name, cause=state.cause)
        took = self.take_result(result, now)
        if is_first:
            return [Note(f"{reason}; stopping the others"), *self._advance(now)]
        if self.expected is not None and self.expected.exit_code == 0:
            return [Note(f"{name} on {host}: {state.last}")]
        return [Note(reason)] if took else []

    def _in_order(self, *, is_done: bool = False) -> list[Stage]:
        """Ends the chief first, so that it saves while the others still run, and the ps last.

        After a success, the others have `grace_secs` to end by themselves.
        """
        secs, others = self._limits.stop_secs, self._names("worker", "evaluator")
        chiefs = ask_then_kill(self._names(*CHIEFS), secs)
        return [
            *([Stage(others, None, self._limits.grace_secs)] if is_done else chiefs),
            *ask_then_kill(others, secs),
            *ask_then_kill(self._names("ps"), self._ps_secs),
        ]

    def _names(self, *task_types: str) -> list[str]:
        return [name for name, s in self.states.items() if s.task.task_type in task_types]

    def _advance(self, now: float) -> list[Action]:
        """Carries on with the end of the job; nothing if the job goes on."""
        if self._end is None:
            return []
        for state in self.states.values():
            if state.status in ("waiting", "restarting"):
                state.status = "ended"
        actions: list[Action] = []
        while self._end:  # up to the first stage whose tasks still run and have time left
            stage = self._end[0]
            alive = [name for name in stage.tasks if self.states[name].alive]
            is_kill = bool(alive) and stage.signum == signal.SIGKILL
            if stage.since is None:
                stage.since = now
                signals = () if stage.signum is None else (int(stage.signum),)
                for name in alive:
                    actions += [Signal(name, signum) for signum in signals]
                    self.states[name].signals += signals
                if is_kill:
                    actions.append(Note(f"{', '.join(alive)} still running: killed"))
            if alive and now < stage.since + stage.secs:
                break
            if is_kill:
                actions.append(Note(f"{', '.join(alive)}: end not confirmed; run `clean`"))
            self._end.pop(0)
        expected = self.expected
        if not self._end and expected is not None:
            has_failed = expected.cause is ExitReason.TASK_FAILED
            by_sigterm = has_failed and expected.exit_code == 128 + signal.SIGTERM
            # Word of who has sent a SIGTERM to a task may still be on its way.
            if not by_sigterm or now >= self._settled_at:
                self.result = expected
        return actions
