"""`python -m tests.simulation`: runs many seeds, or repeats one with its trace."""

import argparse
import collections
import sys
import time
from typing import Any

from tests.simulation.kubernetes import KubernetesRun
from tests.simulation.runs import AgentRun


def main() -> int:
    """Returns 1 if an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many; default: %(default)s")
    parser.add_argument("--kubernetes", action="store_true", help="jobs of Kubernetes, not agents")
    parser.add_argument("--first", type=int, default=0, help="the first one; default: %(default)s")
    parser.add_argument("--seed", type=int, help="repeat this one alone, with its trace")
    options = parser.parse_args()
    job: Any = KubernetesRun if options.kubernetes else AgentRun
    if options.seed is not None:
        run = job(options.seed, traces=True)
        broken = run.run().broken
        print("\n".join(run.world.trace or ()))
        return 1 if broken else 0
    seeds = range(options.first, options.first + options.seeds)
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


if __name__ == "__main__":
    sys.exit(main())
