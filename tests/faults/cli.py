"""`python -m tests.faults`: breaks real jobs in many ways, and prints what comes of it."""

import argparse
import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Optional

from testbeds import nodes as machines
from testbeds.nodes import Nodes
from tests.cifar10.program import make_records
from tests.faults import cells, report
from tests.faults.cells import Cell
from tests.faults.experiment import Bench, Result, shape_of
from tests.faults.runs import STOP, Size
from tests.launch.launcher import ROOT

_IMAGES = 200


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the matrix; returns 1 if a cell failed."""
    options = _parser().parse_args(argv)
    chosen = _chosen(options)
    if options.list:
        print("\n".join(cell.name for cell in chosen))
        return 0
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: STOP.set())
    began = time.monotonic()
    results: list[Result] = []

    def take(result: Result) -> None:
        print(report.line_of(result), flush=True)
        results.append(result)
        report.write(results, options.out)

    run(chosen, Size(), options, take)
    print(report.as_markdown(results))
    print(f"{time.monotonic() - began:.0f} s; table: {options.out / 'matrix.md'}")
    return 1 if any(result.wrong for result in results) else 0


def _chosen(options: argparse.Namespace) -> list[Cell]:
    """Returns the cells to run."""
    names = [word for word in options.only if "/" in word]
    covering = cells.cover(cells.every_cell(), options.seed)
    return [cells.cell_named(name) for name in names] or cells.pick(covering, options.only)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="WORD",
        help="cells with a fault, task, time or replication of this name; or cells by their names",
    )
    parser.add_argument("--seed", type=int, default=1, help="which cells cover all pairs")
    parser.add_argument("--jobs", type=int, default=2, help="cells that run at a time")
    parser.add_argument("--list", action="store_true", help="print the cells; run nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "faults", help="folder of the tables")
    return parser


def run(
    chosen: Sequence[Cell],
    size: Size,
    options: argparse.Namespace,
    take: Callable[[Result], None],
) -> None:
    """Carries out cells, a few at a time; those on hosts of their own come one after the other.

    Args:
      chosen: the cells.
      size: how long faults last.
      options: the command line.
      take: is called with each result.
    """
    on_nodes = [cell for cell in chosen if shape_of(cell).on_nodes]
    turns = [[cell] for cell in chosen if cell not in on_nodes]
    with tempfile.TemporaryDirectory(prefix="faults-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        data = make_records(folder / "data", _IMAGES)
        nodes = None
        if on_nodes and machines.why_not() is None:
            nodes = stack.enter_context(Nodes(folder / "ssh", count=3))
            turns.insert(0, on_nodes)
        elif on_nodes:
            print(f"left out, since {machines.why_not()}: {', '.join(c.name for c in on_nodes)}")
        bench = Bench(folder / "jobs", data, size, options.out / "logs", nodes)
        with ThreadPoolExecutor(options.jobs) as pool:
            for turn in turns:
                pool.submit(_in_turn, bench, turn, take)


def _in_turn(bench: Bench, turn: Sequence[Cell], take: Callable[[Result], None]) -> None:
    for cell in turn:
        if not STOP.is_set():
            take(bench.run(cell))
