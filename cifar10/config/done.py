"""How far training has come, by which its last step is found."""

from typing import NamedTuple


class Done(NamedTuple):
    """How far training has come.

    Attributes:
      step: the global step.
      examples_seen: the number of training images up to that step.
    """

    step: int = 0
    examples_seen: int = 0


NOTHING_DONE = Done()
