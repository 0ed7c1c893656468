"""Carries out one cell: starts the job, breaks it once, and looks at what comes of it."""

import os
import shutil
import signal
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from testbeds.errors import TestbedError
from testbeds.nodes import Nodes
from tests.faults import checks
from tests.faults.cells import MASTER, SAVING, Cell
from tests.faults.faults import FAULTS, Fault, unmount_below
from tests.faults.runs import LEASE_SECS, CellError, Job, MissedError

_TRIES = 3


@dataclass
class Result:
    """What a cell has shown.

    Attributes:
      cell: the cell's name.
      outcome: how the job ended, in words.
      wrong: what is wrong; empty if the cell has passed.
      secs: wall time of all runs of the job.
    """

    cell: str
    outcome: str = ""
    wrong: list[str] = field(default_factory=list)
    secs: float = 0.0

    def __str__(self) -> str:
        shown = f"FAILED: {'; '.join(self.wrong)}" if self.wrong else self.outcome
        return f"{self.cell:42s} {self.secs:6.0f} s  {shown}"


@dataclass
class Bench:
    """Runs jobs.

    Attributes:
      folder: the folder for all jobs.
      data: the folder of the records.
      kept: the folder for what is left of cells that fail.
      nodes: the hosts for cells that cut links.
    """

    folder: Path
    data: Path
    kept: Path
    nodes: Optional[Nodes] = None

    def run(self, cell: Cell) -> Result:
        """Carries out a cell; again if the moment for its fault was missed."""
        for _ in range(_TRIES):
            result = Result(cell.name)
            if self._try(cell, result):
                break
        return result

    def _try(self, cell: Cell, result: Result) -> bool:
        """Returns whether the fault came at its moment, so that the result says something."""
        nodes, is_met = self.nodes if cell.on_nodes else None, True
        job = Job(self.folder / cell.name.replace("/", "-"), self.data, cell, nodes)
        fault = FAULTS[cell.fault](cell, job)
        began = time.monotonic()
        try:
            result.outcome, result.wrong = _carry_out(cell, fault, job)
        except (CellError, TestbedError) as error:
            is_met = not isinstance(error, MissedError)
            result.wrong.append(str(error))
        except Exception:
            result.wrong.append(traceback.format_exc())
        finally:
            job.kill()
            fault.repair()
            unmount_below(job.folder)
        result.secs = time.monotonic() - began
        if result.wrong:
            shutil.rmtree(self.kept / job.folder.name, ignore_errors=True)
            shutil.copytree(job.folder, self.kept / job.folder.name)
        shutil.rmtree(job.folder, ignore_errors=True)
        return is_met


def _carry_out(cell: Cell, fault: Fault, job: Job) -> tuple[str, list[str]]:
    """Returns the outcome, and what is wrong."""
    saved = 0
    fault.prepare()
    if cell.comes_first:
        fault.strike()
    job.start()
    if not cell.comes_first:
        job.wait_for_moment(cell.task, cell.time)
        saved = job.saved_step()
        fault.strike()
    # Unless the fault leaves it so, the chief, which stands still in a checkpoint, goes on.
    if cell.time == SAVING and (cell.fault, cell.task) != ("sigstop", MASTER):
        with suppress(ProcessLookupError, AssertionError):
            os.kill(job.pid(MASTER), signal.SIGCONT)
    code = job.end(fault.go_on)
    words, wrong = f"exit code {code}", []
    # On a host that the launcher cannot reach, or after its own sudden end, processes may go on
    # until their lease is over.
    is_reachable = fault.ending is None and not cell.on_nodes
    secs_to_end = 5 if is_reachable else 2 * LEASE_SECS + 20
    if code == 0:
        fault.repair()
        words = f"not broken: {fault.note}" if fault.note else "0, by itself"
    elif fault.ending is None:
        return words, [f"the job ended with {code}: {_last_line(job)}"]
    else:
        wrong += checks.ended_as_told(job, fault.ending, code)
        wrong += checks.processes_left(job, secs_to_end)
        before = job.saved_step()
        fault.repair()
        job.start()
        again = job.end()
        words += f", then {again}"
        if again:
            return words, [*wrong, f"the same command ended with {again}: {_last_line(job)}"]
        if before and job.saved_step() < before:
            wrong.append(f"checkpoint {before} is lost")
    wrong += checks.complete(job) + checks.steps_kept(job, saved)
    return words, wrong + checks.nothing_left(job, secs_to_end)


def _last_line(job: Job) -> str:
    return next(reversed(job.printed().strip().splitlines()), "no line")
