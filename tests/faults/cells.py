"""The cells of the matrix: which fault meets which task, when, and in which kind of training.

All pairs of two values are covered by few cells, which a greedy search chooses.
"""

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PS, MASTER, WORKER, EVALUATOR = "ps", "master", "worker", "evaluator"
LAUNCHER, AGENT = "launcher", "agent"
TASKS = (PS, MASTER, WORKER, EVALUATOR, LAUNCHER, AGENT)
START, MID_RUN, SAVING, FIGURES = "start", "mid-run", "saving", "figures"
TIMES = (START, MID_RUN, SAVING, FIGURES)
ASYNC, SYNC, IN_GRAPH = "async", "sync", "in-graph"
REPLICATIONS = (ASYNC, SYNC, IN_GRAPH)

# Fault -> the tasks that it can meet. A disk belongs to those that write to it; a link to a host
# is cut with the tasks on it; the clock of the launcher's machine is the agent's, too.
TASKS_OF = {
    "sigkill": TASKS,
    "sigstop": TASKS,
    "sigterm": TASKS,
    "oom": TASKS,
    "full-data": (WORKER,),
    "full-output": (MASTER, EVALUATOR),
    "full-log": (LAUNCHER,),
    "readonly-output": (MASTER, EVALUATOR),
    "cut-for-a-while": (PS, MASTER, WORKER),
    "cut-for-good": (PS, MASTER, WORKER),
    "clock": (PS, MASTER, WORKER, EVALUATOR, LAUNCHER),
    "slow": TASKS,
}


@dataclass(frozen=True)
class Cell:
    """One experiment.

    Attributes:
      fault: one of TASKS_OF.
      task: one of TASKS, whose process, folder or host is broken.
      time: one of TIMES, the state of the job in which the fault comes.
      replication: one of REPLICATIONS.
    """

    fault: str
    task: str
    time: str
    replication: str

    @property
    def name(self) -> str:
        """The name by which a cell is picked, e.g. `sigkill/ps/mid-run/sync`."""
        return "/".join((self.fault, self.task, self.time, self.replication))


def every_cell() -> list[Cell]:
    """Returns every cell that makes sense."""
    return [
        Cell(fault, task, time, replication)
        for fault, tasks in TASKS_OF.items()
        for task, time, replication in itertools.product(tasks, TIMES, REPLICATIONS)
    ]


def cell_named(name: str) -> Cell:
    """Returns the cell of a name.

    Raises:
      LookupError: there is no such cell.
    """
    for cell in every_cell():
        if cell.name == name:
            return cell
    raise LookupError(f"no cell {name}; a name is FAULT/TASK/TIME/REPLICATION, see --list")


Pair = tuple[str, str]


def pairs_of(cell: Cell) -> set[Pair]:
    """Returns the six pairs of values that a cell covers; each value names its kind by itself."""
    values = (cell.fault, cell.task, cell.time, cell.replication)
    return set(itertools.combinations(values, 2))


def cover(cells: Sequence[Cell], seed: int) -> list[Cell]:
    """Returns few of the cells that together have every pair of values that all of them have.

    Args:
      cells: the cells to choose from.
      seed: decides between cells that add equally many pairs.
    """
    left = set().union(*(pairs_of(cell) for cell in cells))
    waiting = list(cells)
    random.Random(seed).shuffle(waiting)
    chosen = []
    while left:
        best = max(waiting, key=lambda cell: len(pairs_of(cell) & left))
        left -= pairs_of(best)
        waiting.remove(best)
        chosen.append(best)
    return sorted(chosen, key=cells.index)


def pick(cells: Iterable[Cell], words: Sequence[str]) -> list[Cell]:
    """Returns the cells with one of the words among the parts of their name, or as their name."""
    return [cell for cell in cells if not words or _fits(cell, words)]


def _fits(cell: Cell, words: Sequence[str]) -> bool:
    return cell.name in words or bool(set(words) & set(cell.name.split("/")))
