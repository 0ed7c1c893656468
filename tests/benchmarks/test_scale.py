import pytest

from benchmarks.scale import Constants, Link, Measured, Shape, cycle_secs, fit, predict

# A step of 100 images computes for 100 ms (standard deviation 10 %) and transfers 5 MB; calls take
# 4 ms; a server takes 1 ms, and 1 ms per MB of its shard.
CONSTANTS = Constants(100, 5e6, 0.1, 0.1, 0.004, 0.001, 1e-9)
GIGABIT = Link(125e6, 0.001)


def test_a_single_trainer_waits_for_nobody() -> None:
    for sync in (False, True):
        step = predict(CONSTANTS, Shape(1, 1, sync), GIGABIT)
        # Computing, three round trips beside the calls, the wire with its framing, the server.
        assert step == pytest.approx((0.1, 0.004 + 3 * 0.001, 0.04 * 1.06215, 0.006, 0.0), rel=1e-4)
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
        secs = predict(constants, Shape(1, ps), Link()).secs
        found[ps] = Measured(secs, 0.0, constants.server_cpu(ps), constants.step_bytes)
    return found


def test_the_fit_finds_the_constants_that_made_the_figures() -> None:
    found = fit(100, [_round(CONSTANTS)] * 3)
    assert found._asdict() == pytest.approx(CONSTANTS._asdict(), rel=1e-6)
