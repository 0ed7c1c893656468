import pytest

from benchmarks.scale import Constants, Link, Measured, Shape, cycle_secs, fit, predict

# A step computes for 100 ms and transfers 5 MB; a server takes 1 ms, and 1 ms per MB of its shard.
CONSTANTS = Constants(
    batch_size=100,
    step_bytes=5e6,
    compute_secs=0.1,
    jitter=0.1,
    own_secs=0.004,
    server_secs=0.001,
    server_secs_per_byte=1e-9,
)
GIGABIT = Link(125e6, 0.001)


def test_a_single_trainer_waits_for_nobody() -> None:
    for sync in (False, True):
        step = predict(CONSTANTS, Shape(1, 1, sync), GIGABIT)
        assert step.compute == 0.1
        assert step.calls == pytest.approx(0.004 + 3 * 0.001)
        assert step.wire == pytest.approx(0.04 * 1.0622, rel=1e-4)
        assert step.server == pytest.approx(0.006)
        assert step.waiting == pytest.approx(0.0, abs=1e-12)
        assert step.secs == pytest.approx(0.15549, rel=1e-4)


def test_mean_value_analysis_gives_the_textbooks_figures() -> None:
    # Two customers, a station of 1 s, 1 s of thinking: a response takes 1 s, then 1.5 s.
    assert cycle_secs(2, 1.0, [1.0]) == pytest.approx(2.5)
    # Without thinking, two equal stations: n customers cycle in n + 1 service times.
    assert cycle_secs(3, 0.0, [1.0, 1.0]) == pytest.approx(4.0)


def _round(constants: Constants) -> dict[int, Measured]:
    """Returns what a round of short runs shows."""
    found = {0: Measured(constants.compute_secs, constants.jitter)}
    for ps in (1, 2):
        found[ps] = Measured(
            step_secs=predict(constants, Shape(1, ps), Link()).secs,
            server_cpu_secs=constants.server_cpu(ps),
            step_bytes=constants.step_bytes,
        )
    return found


def test_the_fit_finds_the_constants_that_made_the_figures() -> None:
    found = fit(100, [_round(CONSTANTS)] * 3)
    assert found._asdict() == pytest.approx(CONSTANTS._asdict(), rel=1e-6)
