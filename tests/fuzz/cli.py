"""The long run: tries inputs on all parsers for minutes, and stores those that break one.

python -m tests.fuzz --minutes 15                  # all parsers, 15 minutes in all
python -m tests.fuzz --parser tar --minutes 5 --seed 7
"""

import argparse
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Optional

from tests.fuzz import corpus, session
from tests.fuzz.parser import Parser
from tests.fuzz.table import PARSERS


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the command; returns 1 if an input broke a parser, else 0."""
    options = _parser().parse_args(argv)
    chosen = [one for one in PARSERS if options.parser in (None, one.name)]
    if options.child is not None:
        session.run_here(chosen[0], 60 * options.minutes, options.seed, options.child)
        return 0
    jobs = os.cpu_count() or 1
    secs = 60 * options.minutes * min(jobs, len(chosen)) / len(chosen)
    print(f"seed {options.seed}, {secs:.0f} s for each of {len(chosen)} parsers, {jobs} at a time")

    def work(parser: Parser) -> int:
        found = session.run_apart(parser, secs, options.seed)
        print(f"{parser.name:<20} {found.tried:>9,} inputs  {len(found.faults)} faults", flush=True)
        for data, fault in found.faults.values():
            path = corpus.keep(parser.name, data)
            print(f"  {path}: {fault}", flush=True)
        return len(found.faults)

    with ThreadPoolExecutor(jobs) as pool:
        faults = sum(pool.map(work, chosen))
    print(f"{faults} faults" if faults else "no input broke a parser")
    return 1 if faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [one.name for one in PARSERS]
    parser.add_argument("--parser", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--minutes", type=float, default=5.0, help="for all parsers (default 5)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    return parser
