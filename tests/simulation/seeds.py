"""What is asserted of the runs of many seeds, whichever kind of job they simulate."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.simulation.broken import Break

Make = Callable[..., Any]  # makes a run from a seed: `AgentRun`, `SlurmRun` or `KubernetesRun`


def broken(make: Make, seeds: Sequence[int]) -> list[str]:
    """Returns what the seeds break; `python -m tests.simulation --seed N` shows a trace."""
    return [f"seed {seed}: {': '.join(one)}" for seed in seeds for one in make(seed).run().broken]


def assert_repeats(make: Make, seed: int) -> None:
    """Asserts that two runs of a seed are the same."""
    traces = []
    for _ in range(2):
        run = make(seed, traces=True)
        run.run()
        traces.append(run.world.trace)
    assert traces[0] == traces[1]
    assert len(traces[0] or ()) > 10


def assert_noticed(
    make: Make, seeds: Sequence[int], wrong: Break, words: str, patch: pytest.MonkeyPatch
) -> None:
    """Asserts that a seed breaks the invariant that a machine breaks on purpose.

    Args:
      make: makes a run from a seed.
      seeds: the seeds to try.
      wrong: breaks the machine.
      words: a part of the invariant's name.
      patch: undoes the break after the test.
    """
    wrong(patch)
    for seed in seeds:
        if any(words in name for name, *_ in make(seed).run().broken):
            return
    pytest.fail(f"{len(seeds)} seeds did not notice: {wrong.__doc__}")
