"""`python -m tests.faults`: breaks real jobs in many ways, and prints what comes of it."""

import argparse
import contextlib
import itertools
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testbeds import nodes as machines
from testbeds.nodes import Nodes
from tests.cifar10.program import make_records
from tests.faults.cells import Cell, chosen
from tests.faults.experiment import Bench, Result
from tests.faults.runs import STOP
from tests.launch.launcher import ROOT

_KEPT = ROOT / "faults"


def main() -> int:
    """Runs the matrix; returns 1 if a cell failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    named = "cells with a fault, task, time or replication of this name; or cells by their names"
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help=named)
    parser.add_argument("--seed", type=int, default=1, help="where the turns begin")
    parser.add_argument("--jobs", type=int, default=2, help="cells that run at a time")
    parser.add_argument("--list", action="store_true", help="print the cells; run nothing")
    options = parser.parse_args()
    cells = chosen(options.only, options.seed)
    if options.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: STOP.set())
    shutil.rmtree(_KEPT, ignore_errors=True)
    results = run(cells, options)
    failed = [result for result in results if result.wrong]
    print(f"{len(results)} cells, {len(failed)} failed", *failed, sep="\n")
    return 1 if failed else 0


def run(cells: Sequence[Cell], options: argparse.Namespace) -> list[Result]:
    """Carries out cells, a few at a time; those on hosts of their own come one after the other."""
    on_nodes = [cell for cell in cells if cell.on_nodes]
    turns = [[cell] for cell in cells if cell not in on_nodes]
    with tempfile.TemporaryDirectory(prefix="faults-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        data = make_records(folder / "data", 200)
        nodes = None
        if on_nodes and machines.why_not() is None:
            nodes = stack.enter_context(Nodes(folder / "ssh", count=3))
            turns.insert(0, on_nodes)
        elif on_nodes:
            print(f"left out, since {machines.why_not()}: {', '.join(c.name for c in on_nodes)}")
        bench = Bench(folder / "jobs", data, _KEPT, nodes)
        with ThreadPoolExecutor(options.jobs) as pool:
            return list(itertools.chain(*pool.map(lambda turn: _in_turn(bench, turn), turns)))


def _in_turn(bench: Bench, turn: Sequence[Cell]) -> list[Result]:
    results = []
    for cell in turn:
        if not STOP.is_set():
            results.append(bench.run(cell))
            print(results[-1], flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
