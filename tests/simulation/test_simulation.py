import pytest

from tests.simulation.broken import BROKEN, BROKEN_IN_SLURM, Break
from tests.simulation.runs import AgentRun
from tests.simulation.seeds import assert_noticed, assert_repeats, broken
from tests.simulation.slurm import SlurmRun

SEEDS = range(2000)

# Seeds that have found a fault: the fault.
FOUND = {
    351: "an agent killed a task that its successor had started",
    1693: "a ps on a machine that stood still got SIGKILL without SIGTERM",
}


def test_a_job_keeps_the_invariants_whatever_goes_wrong() -> None:
    assert broken(AgentRun, SEEDS) == []


@pytest.mark.parametrize("seed", FOUND)
def test_a_fault_that_a_seed_has_found_stays_mended(seed: int) -> None:
    assert broken(AgentRun, [seed]) == []


def test_a_seed_repeats_its_run_exactly() -> None:
    assert_repeats(AgentRun, 7)


@pytest.mark.parametrize("wrong", BROKEN, ids=lambda wrong: wrong.__name__)
def test_a_machine_that_breaks_an_invariant_is_noticed(
    wrong: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_noticed(AgentRun, SEEDS, wrong, BROKEN[wrong], monkeypatch)


def test_a_job_of_slurm_is_followed_through_whatever_becomes_of_it() -> None:
    assert broken(SlurmRun, SEEDS) == []


@pytest.mark.parametrize("wrong", BROKEN_IN_SLURM, ids=lambda wrong: wrong.__name__)
def test_a_follower_that_breaks_an_invariant_is_noticed(
    wrong: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_noticed(SlurmRun, SEEDS, wrong, BROKEN_IN_SLURM[wrong], monkeypatch)
