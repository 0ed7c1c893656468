"""What the main thread does at the moment, for threads that watch it. Standard library only."""

from typing import Optional

# The phases in the words of messages, which say "no progress in PHASE".
START = "the start of training"
FIRST_STEP = "the first training step"
STEP = "a training step"
BETWEEN = "the work between two training steps"
SAVING = "saving a checkpoint"
EVALUATION = "an evaluation"

STEPS = (FIRST_STEP, STEP)
FIRST = (START, FIRST_STEP)  # These build graphs and fill buffers, so they take longer.


class Activity:
    """The phase of the main thread. The main thread notes each beginning; other threads read.

    Attributes:
      phase: the current phase; None: a wait that has a time limit of its own, or nothing watched.
      count: how many beginnings have been noted; it grows as long as there is progress.
    """

    def __init__(self) -> None:
        self.phase: Optional[str] = None
        self.count = 0

    def begin(self, phase: Optional[str]) -> None:
        """Notes that a phase begins, or the next part of the same one, such as a batch."""
        self.phase = phase
        self.count += 1

    @property
    def is_in_step(self) -> bool:
        """Whether the main thread is inside a training step."""
        return self.phase in STEPS
