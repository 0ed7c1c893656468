import pytest

from tests.simulation.broken import BROKEN, BROKEN_IN_SLURM, Break
from tests.simulation.runs import AgentRun
from tests.simulation.slurm import SlurmRun

SEEDS = 2000

# Seeds that have found a fault: the fault.
FOUND = {
    351: "an agent killed a task that its successor had started",
    1693: "a ps on a machine that stood still got SIGKILL without SIGTERM",
}


def broken(seed: int) -> list[str]:
    """Returns what a seed breaks; `python -m tests.simulation --seed N` shows its trace."""
    return [f"seed {seed}: {': '.join(one)}" for one in AgentRun(seed).run().broken]


def test_a_job_keeps_the_invariants_whatever_goes_wrong() -> None:
    found = [line for seed in range(SEEDS) for line in broken(seed)]
    assert found == []


@pytest.mark.parametrize("seed", FOUND)
def test_a_fault_that_a_seed_has_found_stays_mended(seed: int) -> None:
    assert broken(seed) == []


def test_a_seed_repeats_its_run_exactly() -> None:
    traces = []
    for _ in range(2):
        run = AgentRun(7, traces=True)
        run.run()
        traces.append(run.world.trace)
    assert traces[0] == traces[1]
    assert len(traces[0] or ()) > 10


@pytest.mark.parametrize("wrong", BROKEN, ids=lambda wrong: wrong.__name__)
def test_a_machine_that_breaks_an_invariant_is_noticed(
    wrong: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong(monkeypatch)
    for seed in range(SEEDS):
        if any(BROKEN[wrong] in line for line in broken(seed)):
            return
    pytest.fail(f"{SEEDS} seeds did not notice: {wrong.__doc__}")


def test_a_job_of_slurm_is_followed_through_whatever_becomes_of_it() -> None:
    assert [(seed, one) for seed in range(SEEDS) for one in SlurmRun(seed).run().broken] == []


@pytest.mark.parametrize("wrong", BROKEN_IN_SLURM, ids=lambda wrong: wrong.__name__)
def test_a_follower_that_breaks_an_invariant_is_noticed(
    wrong: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong(monkeypatch)
    for seed in range(SEEDS):
        if any(BROKEN_IN_SLURM[wrong] in one[0] for one in SlurmRun(seed).run().broken):
            return
    pytest.fail(f"{SEEDS} seeds did not notice: {wrong.__doc__}")
