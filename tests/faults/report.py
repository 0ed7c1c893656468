"""The matrix as a table: on the terminal, as markdown and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.faults.experiment import NOT_BROKEN, Result

_HEAD = ("fault", "task", "time", "replication", "outcome", "steps lost", "seconds")


def row_of(result: Result) -> list[str]:
    """Returns the row of a cell."""
    outcome = f"FAILED: {result.wrong[0]}" if result.wrong else result.outcome
    outcome = " ".join(outcome.replace("|", "/").split())[:160]
    return [*result.cell.split("/"), outcome, str(result.steps_lost), f"{result.secs:.0f}"]


def line_of(result: Result) -> str:
    """Returns a cell's line on the terminal."""
    *cell, outcome, steps, secs = row_of(result)
    return f"{'/'.join(cell):42s} {steps:>5s} steps {secs:>6s} s  {outcome}"


def as_markdown(results: Sequence[Result]) -> str:
    """Returns the table in markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in (_HEAD, ("---",) * len(_HEAD))]
    lines += ["| " + " | ".join(row_of(result)) + " |" for result in results]
    failed = [result for result in results if result.wrong]
    idle = [result.cell for result in results if result.outcome.startswith(NOT_BROKEN)]
    nothing = f" {len(idle)} show nothing: {', '.join(idle)}." if idle else ""
    lines += ["", f"{len(results)} cells, {len(failed)} failed.{nothing}"]
    for result in failed:
        lines += ["", f"`{result.cell}`:", *(f"- {one}" for one in result.wrong)]
    return "\n".join(lines) + "\n"


def write(results: Sequence[Result], folder: Path) -> None:
    """Writes `matrix.json` and `matrix.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [asdict(result) for result in results]
    (folder / "matrix.json").write_text(json.dumps(found, indent=2) + "\n")
    (folder / "matrix.md").write_text(as_markdown(results))
