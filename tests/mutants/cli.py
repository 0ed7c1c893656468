"""The command line `python -m tests.mutants [MODULE ...]`."""

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from tests.mutants import report, runner
from tests.mutants.mutations import Mutant, mutants_of
from tests.mutants.survivors import SURVIVORS
from tests.mutants.targets import TARGETS

_ROOT = Path(__file__).resolve().parents[2]
_LEAST = 0.9


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs mutants; returns the exit code: 1 if `report.judge` finds faults, 2 after an error."""
    options = _parse(argv)
    # An exit instead of the default end lets this process end its children first.
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(128 + signum))
    os.chdir(_ROOT)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    modules = options.modules or list(TARGETS)
    mutants = {one: mutants_of(one, (_ROOT / one).read_text(encoding="utf-8")) for one in modules}
    listed = {one.key for one in SURVIVORS}
    began, results = time.monotonic(), []
    try:
        for module in modules:
            chosen = _sample(mutants[module], options)
            for result in _run(module, chosen, options.processes):
                results.append(result)
                if result.status == "survived" and result.mutant.key not in listed:
                    print(report.shown(result.mutant), flush=True)
    except runner.RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"\n{report.table(results, listed)}\n{time.monotonic() - began:.0f} s")
    if options.json:
        report.write_json(options.json, results, listed)
    all_keys = {mutant.key for found in mutants.values() for mutant in found}
    faults = report.judge(results, all_keys, listed, 0.0 if options.again else _LEAST)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _run(module: str, mutants: Sequence[Mutant], processes: int) -> Iterator[runner.Result]:
    tests = TARGETS[module]
    print(f"{module}: {len(mutants)} mutants against {', '.join(tests)}", flush=True)
    baseline = runner.measure(_ROOT, module, tests)
    yield from runner.run(_ROOT, tests, baseline, mutants, processes)


def _sample(mutants: Sequence[Mutant], options: argparse.Namespace) -> list[Mutant]:
    found = list(mutants)
    if options.again:
        entries = json.loads(options.again.read_text(encoding="utf-8"))
        keys = {
            (one["module"], one["place"], one["text"], one["change"])
            for one in entries
            if one["status"] == "survived"
        }
        found = [one for one in mutants if one.key in keys]
    if options.sample is None or options.sample >= len(found):
        return found
    chosen = random.Random(options.seed).sample(found, options.sample)
    return sorted(chosen, key=lambda mutant: mutant.start)


def _parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description="Puts small faults into modules; the tests meant for them must notice each.",
    )
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="default: all of targets.py")
    parser.add_argument("--sample", type=int, metavar="N", help="at most N mutants a module")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--again", type=Path, metavar="FILE", help="only the survivors of --json")
    parser.add_argument("--processes", type=int, metavar="N", default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, metavar="FILE", help="every mutant, for programs")
    options = parser.parse_args(argv)
    for module in options.modules:
        if module not in TARGETS:
            parser.error(f"no tests are known for {module}; there are {', '.join(TARGETS)}")
    return options
