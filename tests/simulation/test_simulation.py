"""Jobs keep the invariants whatever hosts, links, the platform and the user do.

`python -m tests.simulation --seed N` shows the trace of a seed, and tries many more.
"""

from collections.abc import Callable, Iterable
from typing import Any

from tests.simulation.kubernetes import KubernetesRun
from tests.simulation.runs import AgentRun

SEEDS = range(400)

# Further seeds that have found a fault: the fault.
FOUND_BY_AGENTS = {1693: "a ps on a machine that stood still got SIGKILL without SIGTERM"}


def broken(make: Callable[..., Any], seeds: Iterable[int]) -> list[str]:
    return [
        f"seed {seed}: {': '.join(breach)}" for seed in seeds for breach in make(seed).run().broken
    ]


def test_a_job_keeps_the_invariants_whatever_goes_wrong() -> None:
    assert broken(AgentRun, [*SEEDS, *FOUND_BY_AGENTS]) == []


def test_a_job_of_kubernetes_is_followed_through_whatever_becomes_of_it() -> None:
    assert broken(KubernetesRun, SEEDS[:200]) == []
