"""What the tasks of a simulated job do: train, fail, save, and end together."""

import signal
from typing import Optional

from tests.simulation.hosts import Process
from tests.simulation.world import World

_LINE_SECS = 2.0
_PS_PATIENCE_SECS = 8.0  # for trainers that save, after a SIGTERM
_HABITS = ("saves", "saves", "saves", "deaf", "early", "zero", "fails")


class Training:
    """The training that the tasks share.

    Attributes:
      done: when the master has trained; it then makes the figures.
      figures_secs: how long it makes them.
      programs: all programs that have been started.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.done = world.rng.uniform(2, 30)
        self.figures_secs = world.rng.choice((0.0, 0.5, 6.0))
        self.habits: dict[str, str] = {}
        self.programs: list[Program] = []

    def habit(self, name: str) -> str:
        """Returns what a task does at SIGTERM."""
        return self.habits.setdefault(name, self.world.rng.choice(_HABITS))

    def program(self, process: Process) -> "Program":
        """Returns the program of a new process."""
        program = Program(self, process)
        self.programs.append(program)
        return program

    def chief(self) -> "Optional[Program]":
        """Returns the program of the newest chief."""
        chiefs = [program for program in self.programs if program.is_chief]
        return chiefs[-1] if chiefs else None


class Program:
    """What one process does."""

    def __init__(self, training: Training, process: Process) -> None:
        self.training, self.process, self.world = training, process, training.world
        self.type = process.name.split("/")[0]
        self.is_chief = self.type in ("master", "chief")
        self._is_asked = False
        rng, host = self.world.rng, process.host
        self.began = self.world.now
        if self.type != "ps":
            host.later(rng.uniform(0.2, 1.0), self._write)
        ends = max(training.done - self.world.now, 0.3) + rng.uniform(0, 0.5)
        if self.is_chief:
            host.later(ends + training.figures_secs, self._exit, 0)
        elif self.type == "ps":
            host.later(1.0, self._serve)
        elif rng.random() < 0.85:  # else it stays
            host.later(ends + rng.uniform(-1.0, 1.0), self._exit, 0)

    def take(self, signum: int) -> None:
        """Takes a signal that it can catch."""
        habit = self.training.habit(self.process.name)
        if signum != signal.SIGTERM or (habit == "early" and not self._is_asked):
            self.process.end(-signum)
        elif not self._is_asked and habit != "deaf":
            self._is_asked = True
            secs = self.world.rng.choice((0.05, 0.5, 2.0, 4.0, 6.9))
            code = {"zero": 0, "fails": 1}.get(habit, 143)
            if self.type == "ps":
                self._wait_for_the_lead(self.world.now + _PS_PATIENCE_SECS, code)
            else:
                self.process.host.later(secs, self._exit, code)

    def fail(self, code: int) -> None:
        """Fails by itself, which others that need it may notice."""
        if self.process.code is None:
            self.process.end(code)
            rng = self.world.rng
            if self.type == "ps" or self.is_chief:
                for other in self.training.programs:
                    if other.type != "ps" and rng.random() < 0.7:
                        other.process.host.later(rng.uniform(0.0, 3.0), other._notice)

    def _notice(self) -> None:
        """Fails because another task is missing, unless it is saving."""
        if self.process.code is None and not self._is_asked:
            self.process.end(1)

    def _exit(self, code: int) -> None:
        self.process.end(code)

    def _write(self) -> None:
        if self.process.code is None:
            self.process.write("step 1/9  loss 1  5 images/s")
            self.process.host.later(_LINE_SECS, self._write)

    def _serve(self) -> None:
        """Ends once the trainers have ended, as a ps does at the end of training."""
        chief = self.training.chief()
        if chief is not None and self.process.code is None:
            if chief.process.code == 0 and not self._is_asked and self.world.rng.random() < 0.5:
                self._exit(0)
            else:
                self.process.host.later(1.0, self._serve)

    def _wait_for_the_lead(self, deadline: float, code: int) -> None:
        chief = self.training.chief()
        if chief is None or chief.process.code is not None or self.world.now >= deadline:
            self._exit(code)
        else:
            self.process.host.later(0.5, self._wait_for_the_lead, deadline, code)
