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
from tests.faults.cells import EVALUATOR, MASTER, SAVING, Cell
from tests.faults.faults import Fault, fault_of, strikes_before_the_start, unmount_below
from tests.faults.runs import CellError, Job, MissedError, Shape, Size

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


def shape_of(cell: Cell) -> Shape:
    """Returns the shape of a cell's job."""
    return Shape(cell.replication, cell.task == EVALUATOR, fault_of(cell).on_nodes)


class Bench:
    """Runs jobs.

    Args:
      folder: the folder for all jobs.
      data: the folder of the records.
      size: how long faults last.
      kept: the folder for the logs of cells that fail.
      nodes: the hosts for cells that cut links.
    """

    def __init__(
        self, folder: Path, data: Path, size: Size, kept: Path, nodes: Optional[Nodes] = None
    ) -> None:
        self._folder, self._data, self._size, self._kept = folder, data, size, kept
        self._nodes = nodes

    def run(self, cell: Cell) -> Result:
        """Carries out a cell; again if the moment for its fault was missed."""
        for _ in range(_TRIES):
            result = Result(cell.name)
            if self._try(cell, result):
                break
        return result

    def _try(self, cell: Cell, result: Result) -> bool:
        """Returns whether the fault came at its moment, so that the result says something."""
        fault, shape = fault_of(cell), shape_of(cell)
        nodes, is_met = self._nodes if shape.on_nodes else None, True
        job = Job(self._folder / cell.name.replace("/", "-"), self._data, shape, self._size, nodes)
        began = time.monotonic()
        try:
            result.outcome, result.wrong = self._carry_out(cell, fault, job)
            if not result.wrong:
                result.wrong += checks.steps_kept(job, fault.saved)
                result.wrong += checks.nothing_left(job, self._secs_to_end(fault))
        except (CellError, TestbedError) as error:
            is_met = not isinstance(error, MissedError)
            result.wrong.append(str(error))
        except Exception:
            result.wrong.append(traceback.format_exc())
        finally:
            job.kill()
            fault.repair(job)
            unmount_below(job.folder)
            result.wrong += checks.mounts_left(job.folder)
        result.secs = time.monotonic() - began
        self._put_away(job, result)
        return is_met

    def _carry_out(self, cell: Cell, fault: Fault, job: Job) -> tuple[str, list[str]]:
        """Returns the outcome, and what is wrong."""
        fault.prepare(job)
        job.start()
        if not strikes_before_the_start(cell):
            job.wait_for_moment(cell.task, cell.time)
            fault.saved = job.saved_step()
            fault.strike(job)
        if cell.time == SAVING and not _holds_lead(cell):
            with suppress(ProcessLookupError, AssertionError):
                os.kill(job.pid(MASTER), signal.SIGCONT)
        code = job.end(lambda: fault.go_on(job))
        words = f"exit code {code}"
        if code == 0:
            fault.repair(job)
            outcome = f"not broken: {fault.note}" if fault.note else "0, by itself"
            return outcome, checks.complete(job)
        if fault.ending is None:
            return words, [f"the job ended with {code}: {_last_line(job)}"]
        wrong = checks.ended_as_told(job, fault.ending, code)
        left = checks.nothing_left(job, self._secs_to_end(fault))
        processes = [one for one in left if "process" in one]
        saved = job.saved_step()
        fault.repair(job)
        job.start()
        again = job.end()
        if again:
            wrong.append(f"the same command ended with {again}: {_last_line(job)}")
            return f"{words}, then {again}", wrong + processes
        if saved and job.saved_step() < saved:
            wrong.append(f"checkpoint {saved} is lost")
        return f"{words}, then 0", wrong + processes + checks.complete(job)

    def _secs_to_end(self, fault: Fault) -> float:
        """Returns how long processes may outlive the launcher: on a host that it cannot reach, or
        after its own sudden end, until their lease is over."""
        reachable = fault.ending is None and not fault.on_nodes
        return 5 if reachable else 2 * self._size.lease_secs + 20

    def _put_away(self, job: Job, result: Result) -> None:
        """Keeps the logs of a job that failed, and removes everything else."""
        if result.wrong:
            kept = self._kept / result.cell.replace("/", "-")
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(parents=True)
            for path in [*job.folder.glob("up-*.log"), *job.state.glob("*/output.log*")]:
                run_id = "" if path.parent == job.folder else f"{path.parent.name}-"
                shutil.copy(path, kept / f"{run_id}{path.name}")
        shutil.rmtree(job.folder, ignore_errors=True)


def _holds_lead(cell: Cell) -> bool:
    """Returns whether the lead, which stands still in a checkpoint, is left so by the fault."""
    return cell.fault == "sigstop" and cell.task == MASTER


def _last_line(job: Job) -> str:
    return next(reversed(job.said().strip().splitlines()), "no line")
