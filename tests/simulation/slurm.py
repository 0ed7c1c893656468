"""A job in a simulated Slurm, which the real follower follows through states that change."""

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from launch.backends.slurm.backend import state_of
from launch.backends.slurm.follow import Follower, JobState
from launch.errors import HostError
from launch.record.outcome import Outcome, end_record
from tests.simulation.world import World

_STEP_SECS = 0.4
_LONGEST_SECS = 600.0
_SAVE_SECS = 4.0
_STOP_SECS = 60.0  # the follower may see a change 10 s late; the job may be requeued twice


class SlurmRun:
    """One job; it is also the run's folder, and slurmctld.

    Attributes:
      broken: (name of the invariant, what has happened) of each breach.
    """

    def __init__(self, seed: int, *, traces: bool = False) -> None:
        self.world = World(seed, traces=traces)
        rng = self.world.rng
        self.broken: list[tuple[str, str]] = []
        self.state, self._content = "PENDING", dict[str, Any]()
        self._starts = self._num_requests = 0
        self._is_asked = False
        self._silent_until = self._stopped = 0.0
        self._stops: list[int] = []
        self._requeues = rng.choice((0, 0, 1, 2))
        self._exit_code = rng.choice((0, 0, 3))
        slurm: Any = SimpleNamespace(poll=self.poll, end=self.end)
        self.path = Path("/nowhere")
        folder: Any = self
        display: Any = SimpleNamespace(note=lambda text: None)
        self.outcome: Any = None
        self._follower = Follower(slurm, "7", folder, display)
        self.world.later(rng.choice((0.1, 3.0, 30.0)), self._start)
        moment = rng.uniform(0.1, 60)
        for i in range(rng.choice((0, 1, 1, 2, 3))):
            signum = rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
            self.world.later(moment + i * rng.choice((0.1, 3.0)), self._signal, signum)
        if rng.random() < 0.2:
            self.world.later(moment, self._fall_silent)

    def run(self) -> "SlurmRun":
        """Runs until the follower has ended; returns this run, with what was wrong."""
        self._step()
        self.world.run(_LONGEST_SECS, lambda: self.outcome is not None)
        self._check()
        return self

    def _breach(self, invariant: str, words: str) -> None:
        self.world.say("BROKEN", invariant, words)
        self.broken.append((invariant, words))

    def _check(self) -> None:
        if self.outcome is None:
            self._breach("the follower ends", self.state)
        elif self._stops and self._stops[0] == signal.SIGHUP:
            if self.outcome.exit_code == 129 and self._num_requests:
                self._breach("a lost terminal leaves the job alone", f"{self._num_requests}")
        elif self.outcome.exit_code != 129 and not state_of({"JobState": self.state}).is_over:
            self._breach("the job is over when its follower ends", self.state)
        elif self._stops and not self._silent_until and self.world.now > self._stopped + _STOP_SECS:
            self._breach("a stop ends the job soon", f"after {self.world.now - self._stopped:g} s")
        elif not self._stops and self.outcome.exit_code != self._exit_code:
            self._breach("the exit code is the job's", str(self.outcome))

    def _step(self) -> None:
        self.outcome = self._follower.step(self.world.now, self._stops)
        self.world.later(_STEP_SECS, self._step)

    def _signal(self, signum: int) -> None:
        self.world.say("launcher gets", signum)
        self._stopped = self._stopped or self.world.now
        self._stops.append(signum)

    def _fall_silent(self) -> None:
        self._silent_until = self.world.now + self.world.rng.choice((5.0, 40.0))

    # What follows is slurmctld for the follower.

    def _answer(self) -> None:
        if self.world.now < self._silent_until:
            raise HostError("slurmctld: no answer")

    def poll(self, job_id: str) -> JobState:
        """Returns the job's state."""
        self._answer()
        return state_of({"JobState": self.state})

    def end(self, job_id: str, *, saves: bool) -> None:
        """Lets the tasks save, or cancels the job."""
        self._answer()
        self._num_requests += 1
        (self._ask_to_end if saves else self._cancel)()

    def _cancel(self) -> None:
        self.world.say("cancel", self.state)
        if self.state == "RUNNING" and len(self._stops) < 2:
            self._breach("a job that runs may save at the first signal", "it was cancelled")
        if self.state == "PENDING":
            self.state = "CANCELLED"
        elif self.state == "RUNNING":
            self._end(143)

    def _ask_to_end(self) -> None:
        self.world.say("ask to end", self.state)
        if self.state == "RUNNING" and not self._is_asked:
            self._is_asked = True
            self.world.later(_SAVE_SECS, self._end_of, self._starts, 143)

    # What follows is the run's folder.

    def status(self) -> dict[str, Any]:
        """Returns the status."""
        return self._content

    def write_end(self, outcome: Outcome) -> None:
        """Takes the end that the follower writes."""
        self.write_status({**self._content, **end_record(outcome)})

    def write_status(self, status: dict[str, Any]) -> None:
        """Takes a status that the follower writes."""
        self._content = status

    # What follows is the job.

    def _write(self, start: int) -> None:
        if self.state == "RUNNING" and start == self._starts:
            self._content = {"time": self.world.now, "exit_code": None, "tasks": []}
            self.world.later(1.0, self._write, start)

    def _start(self) -> None:
        if self.state == "PENDING":
            self.world.say("job starts")
            self.state, self._is_asked, rng = "RUNNING", False, self.world.rng
            self._starts += 1
            self.world.later(rng.choice((0.1, 1.0)), self._write, self._starts)
            secs = rng.choice((2.0, 15.0, 40.0))
            if self._requeues:
                self._requeues -= 1
                self.world.later(secs, self._requeue, self._starts)
            else:
                self.world.later(secs, self._end_of, self._starts, self._exit_code)

    def _end_of(self, start: int, code: int) -> None:
        if start == self._starts and self.state == "RUNNING":
            self._end(code)

    def _end(self, code: int) -> None:
        self.world.say("job ends", code)
        self._content = {"time": self.world.now, "exit_code": code, "reason": "it ended"}
        self._content |= {"tasks": [], "cause": None}
        self.state = "COMPLETING"
        self.world.later(self.world.rng.choice((0.1, 3.0)), self._clear_up)

    def _clear_up(self) -> None:
        self.state = "COMPLETED"

    def _requeue(self, start: int) -> None:
        if start != self._starts or self.state != "RUNNING":
            return
        self.world.say("job is requeued")
        self._content = {**self._content, "exit_code": None}
        self.state = "COMPLETING"
        self.world.later(self.world.rng.choice((0.1, 3.0)), self._back_in_the_queue)

    def _back_in_the_queue(self) -> None:
        self.state = "PENDING"
        self.world.later(self.world.rng.choice((0.1, 5.0, 50.0)), self._start)
