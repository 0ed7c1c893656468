import pytest

from tests.simulation.broken import Break
from tests.simulation.broken_kubernetes import BROKEN_IN_KUBERNETES
from tests.simulation.kubernetes import KubernetesRun
from tests.simulation.seeds import assert_noticed, assert_repeats, broken

SEEDS = range(1000)

# Seeds that have found a fault: the fault.
FOUND = {
    14: "a lead that was done before the deletion reached it counted for nothing",
    20: "a pod failed for an image that it had got during an outage of the API",
    43: "nobody named a task that failed while the job ended",
    45: "a job that its queue let go counted as suspended by somebody",
    76: "a pod that went between a list and the next watch was waited for until the last limit",
    154: "a pod that was drained unseen counted as a task that failed",
    861: "the success of a lead whose earlier pod had failed counted for nothing",
    1601: "a user who stopped the job after its success waited for the end of the grace",
    3268: "what a watch had shown before it ended counted as the state of the TFJob",
}


def test_a_tfjob_is_followed_through_whatever_becomes_of_it() -> None:
    assert broken(KubernetesRun, SEEDS) == []


@pytest.mark.parametrize("seed", FOUND)
def test_a_fault_that_a_seed_has_found_stays_mended(seed: int) -> None:
    assert broken(KubernetesRun, [seed]) == []


def test_a_seed_repeats_its_run_exactly() -> None:
    assert_repeats(KubernetesRun, 14)


@pytest.mark.parametrize("wrong", BROKEN_IN_KUBERNETES, ids=lambda wrong: wrong.__name__)
def test_a_follower_that_breaks_an_invariant_is_noticed(
    wrong: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_noticed(KubernetesRun, SEEDS, wrong, BROKEN_IN_KUBERNETES[wrong], monkeypatch)
