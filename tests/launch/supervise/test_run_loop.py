"""What every job needs until its end, with a runner that does as a test says."""

import io
import json
import os
import queue
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional

import pytest

from launch.cluster.model import Host
from launch.cluster.tasks import Devices, Task
from launch.record.outcome import Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise import run_loop
from launch.supervise.run_loop import RunLoop, stop_signals
from launch.supervise.supervisor import TaskState

Event = Callable[[], None]


class Decider:
    """Decides nothing; a test sets the outcome."""

    def __init__(self) -> None:
        host = Host("node0", "node0", (), "/data")
        task = Task("worker", 0, host, 2222, Devices(), "{}", ())
        self.states = {"worker/0": TaskState(task, "running")}
        self.outcome: Optional[Outcome] = None
        self.verdict: Optional[Outcome] = None
        self.stepped: list[bool] = []

    def heard(self, now: float, *, stepped: bool) -> None:
        self.stepped.append(stepped)


class Runner:
    """Calls the events that it is handed, and remembers what else it is told."""

    def __init__(self, first: Callable[[], None] = lambda: None) -> None:
        self.start = first
        self.stops: list[tuple[int, int]] = []
        self.ticks: list[Callable[[], None]] = []
        self.late: list[Callable[[], None]] = []

    def handle(self, event: Event) -> None:
        event()

    def stop(self, signum: int, count: int) -> None:
        self.stops.append((signum, count))

    def tick(self, now: float) -> None:
        if self.ticks:
            self.ticks.pop(0)()

    def has_lines_to_come(self) -> bool:
        if self.late:
            self.late.pop()()
        return bool(self.late)


class Scene:
    """A loop and what is around it."""

    def __init__(self, folder: Path, keeps_logs: bool = True) -> None:
        (folder / "logs").mkdir(parents=True)
        self.folder, self.screen = RunFolder(folder), io.StringIO()
        self.decider, self.signals = Decider(), list[int]()
        self.display = Display(self.screen, live=False)
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.loop = RunLoop(
            self.decider, self.folder, self.display, events, self.signals, keeps_logs
        )

    def lines(self, *lines: str) -> Event:
        return lambda: self.loop.take_lines("worker/0", "node0", lines)

    def end(self, exit_code: int = 0, task: Optional[str] = None) -> None:
        self.decider.outcome = Outcome(exit_code, "it is over", task)

    def run(self, *events: Event, runner: Optional[Runner] = None) -> Outcome:
        finals: list[Event] = [self.end] if runner is None else []
        for event in [*events, *finals]:
            self.loop.events.put(event)
        outcome = self.loop.run(runner or Runner())
        self.display.close()
        return outcome

    @property
    def log(self) -> Path:
        return self.folder.log_path("worker/0")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "run")


def test_lines_are_shown_and_kept(scene: Scene) -> None:
    scene.run(scene.lines("step 3/9", "hello"), scene.lines("bye"))
    assert scene.log.read_text() == "step 3/9\nhello\nbye\n"
    assert scene.screen.getvalue() == (
        "[worker/0 node0] step 3/9\n[worker/0 node0] hello\n[worker/0 node0] bye\n"
    )
    assert scene.decider.stepped == [True, False]


def test_a_long_line_is_whole_in_the_log_alone(scene: Scene) -> None:
    scene.run(scene.lines("x" * 5000))
    assert scene.log.read_text() == "x" * 5000 + "\n"
    assert scene.screen.getvalue() == f"[worker/0 node0] {'x' * 4096}\n"


def test_a_log_that_cannot_be_written_is_told_once_and_the_job_goes_on(scene: Scene) -> None:
    scene.log.symlink_to("/dev/full")
    outcome = scene.run(scene.lines("one"), scene.lines("two"))
    assert outcome.exit_code == 0
    assert scene.screen.getvalue() == (
        f"worker/0: {scene.log}: No space left on device; lines are left out until that is "
        "repaired, but the job goes on\n"
        "[worker/0 node0] one\n[worker/0 node0] two\n"
    )


def test_logs_that_somebody_else_writes_are_left_to_him(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "run", keeps_logs=False)
    scene.run(scene.lines("hello"))
    assert not scene.log.exists()


def test_the_status_file_has_the_outcome_in_the_end(scene: Scene) -> None:
    scene.run(scene.lines("step 3/9"))
    status = json.loads((scene.folder.path / "status.json").read_text())
    assert (status["exit_code"], status["reason"]) == (0, "it is over")
    assert status["tasks"][0]["step"] == "3/9"


def test_a_failed_tasks_last_lines_and_log_are_in_the_outcome(scene: Scene) -> None:
    outcome = scene.run(
        scene.lines("a", " ", "b"), lambda: scene.end(3, "worker/0"), runner=Runner()
    )
    assert outcome.details == ("  | a", "  | b", f"  log: {scene.log}")


def test_a_log_that_is_not_there_is_not_named(scene: Scene) -> None:
    outcome = scene.run(lambda: scene.end(1, "worker/0"), runner=Runner())
    assert outcome.details == ()


def test_each_signal_is_heeded_once_and_counted(scene: Scene) -> None:
    runner = Runner(lambda: scene.signals.append(15))
    runner.ticks = [lambda: scene.signals.append(2), scene.end]
    scene.run(runner=runner)
    assert runner.stops == [(15, 1), (2, 2)]


def test_lines_that_are_still_to_come_are_waited_for(scene: Scene) -> None:
    runner = Runner()
    runner.late = [lambda: scene.loop.events.put(scene.lines("last"))] * 2
    scene.run(scene.end, runner=runner)
    assert scene.log.read_text() == "last\n"


def test_lines_that_do_not_come_are_named(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_loop, "_LAST_LINES_SECS", 0.0)
    runner = Runner()
    runner.late = [lambda: None] * 1_000_000
    scene.run(scene.end, runner=runner)
    assert "a task's last lines did not come within 0 s" in scene.screen.getvalue()


STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


@pytest.fixture
def as_in_a_shell() -> Iterator[None]:
    """Signals that are not ignored, though the tests may run in the background or under nohup."""
    before = {signum: signal.signal(signum, signal.SIG_DFL) for signum in STOPS}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.usefixtures("as_in_a_shell")
def test_signals_that_ask_for_the_end_are_taken_for_a_while() -> None:
    with stop_signals() as signals:
        for signum in STOPS:
            os.kill(os.getpid(), signum)
    assert sorted(signals) == sorted(STOPS)
    assert {signal.getsignal(signum) for signum in STOPS} == {signal.SIG_DFL}


@pytest.mark.usefixtures("as_in_a_shell")
def test_a_signal_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does it
    with stop_signals() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
    assert signals == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
