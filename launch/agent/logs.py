"""Looks after the logs of one agent's tasks, so that no task runs ahead of a disk for long."""

from collections.abc import Callable, Iterable

from launch.agent.task_process import Running


class Logs:
    """The logs of tasks that run, and of those that have ended.

    Args:
      note: a function that sends a text to the launcher.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._held: list[Running] = []  # whose output is not read, since their logs are behind
        self._unwritten: list[Running] = []  # which have ended, but whose logs are not written yet

    @property
    def has_unwritten(self) -> bool:
        """Whether the log of a task that has ended is still to be written."""
        return bool(self._unwritten)

    def hold(self, task: Running) -> bool:
        """Returns whether a task must wait with its output; then `turn` says when it may go on."""
        if not _must_wait(task):
            return False
        self._held.append(task)
        return True

    def turn(self, running: Iterable[Running]) -> list[Running]:
        """Tells what is wrong with logs.

        Args:
          running: the tasks that have a process.

        Returns:
          The tasks whose output may be read again.
        """
        ended, self._unwritten = self._unwritten, []
        for task in ended:
            self.close(task, 0)
        for task in running:
            self._tell_of_errors(task)
        before, self._held = self._held, []
        return [task for task in before if not self.hold(task)]

    def close(self, task: Running, secs: float) -> None:
        """Waits at most `secs` for the log of a task that has ended; later, `turn` looks again."""
        if not task.log.wait(secs):
            self._unwritten.append(task)
        self._tell_of_errors(task)

    def _tell_of_errors(self, task: Running) -> None:
        """Sends a note if lines are missing in a task's log."""
        for error in task.log.new_errors():
            self._note(f"{task.name}: {error}, but the job goes on")


def _must_wait(task: Running) -> bool:
    """Returns whether a task must wait with its output until its log has caught up.

    A task that is to end must not wait: it could not save.
    """
    return task.log.is_behind and not task.signals
