"""The cells of the matrix: which fault meets which task, when, and in which kind of training."""

import itertools
from collections.abc import Sequence
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

    @property
    def on_nodes(self) -> bool:
        """Whether each task needs a host of its own, reached over ssh."""
        return self.fault.startswith("cut-")

    @property
    def comes_first(self) -> bool:
        """Whether the fault is there before the job starts, as a full disk can be."""
        return self.time == START and self.fault.startswith(("full-", "readonly-"))


def every_cell() -> list[Cell]:
    """Returns every cell that makes sense."""
    return [
        Cell(fault, task, time, replication)
        for fault, tasks in TASKS_OF.items()
        for task, time, replication in itertools.product(tasks, TIMES, REPLICATIONS)
    ]


def chosen(words: Sequence[str], seed: int) -> list[Cell]:
    """Returns the cells of a run: each fault meets each of its tasks once.

    Times and kinds of training come in turns.

    Args:
      words: parts of names, of which a cell must have one, or whole names, of cells outside the
        turns, too; none for all.
      seed: where the turns begin.
    """
    named = [cell for cell in every_cell() if cell.name in words]
    pairs = [(fault, task) for fault, tasks in TASKS_OF.items() for task in tasks]
    turns = [
        Cell(fault, task, TIMES[i % len(TIMES)], REPLICATIONS[i % len(REPLICATIONS)])
        for i, (fault, task) in enumerate(pairs, seed)
    ]
    parts = [cell for cell in turns if not words or set(words) & set(cell.name.split("/"))]
    return named or parts
