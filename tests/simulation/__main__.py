"""`python -m tests.simulation`: runs many seeds, or repeats one with its trace.

With `--broken`, machines are broken on purpose, one way after the other: a seed must notice each.
"""

import argparse
import collections
import sys
import time
from collections.abc import Iterable
from typing import Any

import pytest

from tests.simulation.broken import BROKEN, BROKEN_IN_SLURM, Break
from tests.simulation.broken_kubernetes import BROKEN_IN_KUBERNETES
from tests.simulation.kubernetes import KubernetesRun
from tests.simulation.runs import AgentRun
from tests.simulation.slurm import SlurmRun


def main() -> int:
    """Returns 1 if an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many; default: %(default)s")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--slurm", action="store_true", help="jobs of Slurm, not of agents")
    kind.add_argument("--kubernetes", action="store_true", help="jobs of Kubernetes")
    parser.add_argument("--broken", action="store_true", help="break the machines on purpose")
    parser.add_argument("--first", type=int, default=0, help="the first one; default: %(default)s")
    parser.add_argument("--seed", type=int, help="repeat this one alone, with its trace")
    options = parser.parse_args()
    job: Any
    job, breaks = (SlurmRun, BROKEN_IN_SLURM) if options.slurm else (AgentRun, BROKEN)
    job, breaks = (KubernetesRun, BROKEN_IN_KUBERNETES) if options.kubernetes else (job, breaks)
    if options.seed is not None:
        run = job(options.seed, traces=True)
        broken = run.run().broken
        print("\n".join(run.world.trace or ()))
        return 1 if broken else 0
    seeds = range(options.first, options.first + options.seeds)
    if options.broken:
        return 0 if all([_is_noticed(job, seeds, *one) for one in breaks.items()]) else 1
    began, found = time.monotonic(), collections.Counter[str]()
    for seed in seeds:
        for invariant, words in job(seed).run().broken:
            if found[invariant] < 5:
                print(f"seed {seed}: {invariant}: {words}", flush=True)
            found[invariant] += 1
    print(f"{options.seeds:,} seeds in {time.monotonic() - began:.1f} s")
    for invariant, count in found.most_common():
        print(f"{count:6,} x {invariant}")
    return 1 if found else 0


def _is_noticed(job: Any, seeds: Iterable[int], wrong: Break, words: str) -> bool:
    """Returns whether a seed breaks the invariant named by `words`, and prints which one."""
    with pytest.MonkeyPatch.context() as patch:
        wrong(patch)
        noticed = (n for n in seeds if any(words in one for one, *_ in job(n).run().broken))
        seed = next(noticed, None)
    found = "NOT NOTICED" if seed is None else f"seed {seed}"
    print(f"{wrong.__name__}: {found}: {words}", flush=True)
    return seed is not None


if __name__ == "__main__":
    sys.exit(main())
