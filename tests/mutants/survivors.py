"""Mutants that may survive, each with the reason why no test can or need notice it.

A mutant is recognised by its module, its line of the source, and its change as the report shows
them. `python -m tests.mutants` fails on a survivor that is not in this list, and on an entry whose
mutant is killed or exists no longer.
"""

from typing import NamedTuple


class Survivor(NamedTuple):
    """A mutant that may survive.

    Attributes:
      module: its file.
      text: its line of the source.
      change: `old -> new`, as the report shows it.
      reason: why it may.
    """

    module: str
    text: str
    change: str
    reason: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What `Mutant.key` is for its mutant."""
        return self.module, self.text, self.change


SURVIVORS: tuple[Survivor, ...] = ()
