"""Where training is, and what it has lost: from the lines that the launcher prints of all tasks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE = re.compile(
    r"^\[((?:master|chief|worker)/\d+) [^\]]*\] "
    r"(?:.*  step ([\d,]+)/|continuing at step ([\d,]+)|(training to step))",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Place:
    """A line that tells a step.

    Attributes:
      task: the task that printed it.
      step: the global step.
      is_start: whether the task begins there, and has not trained to there.
    """

    task: str
    step: int
    is_start: bool


def places_in(output: str) -> Iterator[Place]:
    """Yields the places in the output of a launcher, in their order."""
    for task, step, again, _ in _LINE.findall(output):
        yield Place(task, int((step or again or "0").replace(",", "")), not step)


def reached_in(output: str) -> int:
    """Returns the highest step that a trainer has reported; 0 if none has."""
    return max((place.step for place in places_in(output)), default=0)


def starts_in(output: str) -> list[int]:
    """Returns the steps from which the master or chief has begun to train."""
    return [p.step for p in places_in(output) if p.is_start and not p.task.startswith("worker")]


def lost_in(output: str, log_steps: int) -> int:
    """Returns how many steps were trained, and then trained again from a checkpoint.

    Either the lead says where it begins again, or each trainer goes back to a lower step.

    Args:
      output: what launchers have printed, one after the other.
      log_steps: steps between two lines of a trainer; the result is that exact at best.
    """
    lost = reached = 0
    last: dict[str, int] = {}
    for place in places_in(output):
        if place.is_start and place.task.startswith("worker"):
            last.pop(place.task, None)
            continue
        goes_back = place.step < last.get(place.task, 0)
        if place.is_start or goes_back:
            here = place.step if place.is_start else max(0, place.step - log_steps)
            lost += max(0, reached - here)
            reached = place.step
            last.clear()
        reached = max(reached, place.step)
        last[place.task] = place.step
    return lost
