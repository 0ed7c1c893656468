import dataclasses
import math

import pytest

from benchmarks.scaling.step_model import (
    Constants,
    Link,
    Measured,
    Shape,
    cycle_secs,
    fit,
    images_per_sec,
    largest_of,
    predict,
)

# A step computes for 100 ms and transfers 5 MB; a server takes 1 ms, and 1 ms per MB of its piece.
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


def test_a_network_without_limit_costs_nothing() -> None:
    step = predict(CONSTANTS, Shape(1, 2), Link())
    assert step.wire == 0
    assert step.secs == pytest.approx(0.1 + 0.004 + 0.0035)


def test_mean_value_analysis_gives_the_textbooks_figures() -> None:
    # Two customers, a station of 1 s, 1 s of thinking: a response takes 1 s, then 1.5 s.
    assert cycle_secs(2, 1.0, [1.0]) == pytest.approx(2.5)
    # Without thinking, two equal stations: n customers cycle in n + 1 service times.
    assert cycle_secs(3, 0.0, [1.0, 1.0]) == pytest.approx(4.0)


def test_many_asynchronous_trainers_fill_the_servers_link() -> None:
    # 2.5 MB each way in a step: at 125 MB/s at most 50 steps a second, 47.1 with all headers.
    assert images_per_sec(CONSTANTS, Shape(64, 1), GIGABIT) == pytest.approx(4707, rel=0.02)
    assert images_per_sec(CONSTANTS, Shape(64, 1), GIGABIT) < 4707.5
    assert images_per_sec(CONSTANTS, Shape(64, 4), GIGABIT) == pytest.approx(18_830, rel=0.06)


def test_of_many_synchronous_trainers_half_send_while_the_others_still_read() -> None:
    step = predict(CONSTANTS, Shape(17, 1, sync=True), GIGABIT)
    # The others' 16 x 2.5 MB take 340 ms each way: half have read after 0.85 of that, and the
    # gradients of the other half take 0.5 of it.
    assert step.waiting == pytest.approx(0.340 * (0.85 + 0.5), rel=0.01)
    assert predict(CONSTANTS, Shape(17, 2, sync=True), GIGABIT).waiting < step.waiting


def test_synchronous_trainers_wait_for_weights_then_for_the_slowest_one() -> None:
    uneven = dataclasses.replace(CONSTANTS, jitter=1.0)
    step = predict(uneven, Shape(2, 1, sync=True), GIGABIT)
    # The other's weights take 21 ms; of two trainers, one is 59 ms slower than the mean.
    assert step.waiting == pytest.approx(0.0212 + 0.0589, rel=0.01)


def test_synchronous_trainers_wait_for_the_slowest_if_nothing_else_is_slow() -> None:
    small = dataclasses.replace(CONSTANTS, step_bytes=1e4, server_secs=0.0)
    step = predict(small, Shape(2, 1, sync=True), GIGABIT)
    assert step.waiting == pytest.approx(0.00589, rel=0.02)


def test_more_of_anything_never_slows_the_whole_job() -> None:
    for sync in (False, True):
        for ps in (1, 2, 4):
            rates = [images_per_sec(CONSTANTS, Shape(n, ps, sync), GIGABIT) for n in (1, 2, 4, 8)]
            assert rates == sorted(rates)
    for trainers in (1, 8):
        rates = [images_per_sec(CONSTANTS, Shape(trainers, ps), GIGABIT) for ps in (1, 2, 8)]
        assert rates == sorted(rates)


def test_the_largest_of_normal_numbers() -> None:
    assert largest_of(1) == 0
    assert largest_of(10) == pytest.approx(1.5388, rel=0.01)
    assert largest_of(100) == pytest.approx(2.5076, rel=0.01)


def _round(constants: Constants, *, slowness: float = 1.0) -> dict[int, Measured]:
    """Returns the figures of a round of short runs on a machine that is `slowness` times slower."""
    found = {0: Measured(slowness * constants.compute_secs, constants.jitter)}
    for ps in (1, 2):
        found[ps] = Measured(
            step_secs=slowness * predict(constants, Shape(1, ps), Link()).secs,
            server_cpu_secs=constants.server_cpu(ps),
            step_bytes=constants.step_bytes,
        )
    return found


def test_the_fit_finds_the_constants_that_made_the_figures() -> None:
    found = fit(100, [_round(CONSTANTS)] * 3)
    assert dataclasses.asdict(found) == pytest.approx(dataclasses.asdict(CONSTANTS), rel=1e-6)


def test_a_round_on_a_slower_machine_does_not_shift_what_servers_add() -> None:
    slow = _round(CONSTANTS, slowness=1.5)
    assert fit(100, [_round(CONSTANTS), slow, _round(CONSTANTS)]).own_secs == pytest.approx(0.004)
    assert fit(100, [slow]).own_secs == pytest.approx(1.5 * (0.004 + 0.00475) - 0.00475)


def test_no_constant_is_fitted_below_zero() -> None:
    one = _round(CONSTANTS)
    one[1] = dataclasses.replace(one[1], step_secs=0.09)
    one[2] = dataclasses.replace(one[2], step_secs=0.09, server_cpu_secs=0.01)
    found = fit(100, [one])
    assert (found.server_secs_per_byte, found.server_secs) == (0, pytest.approx(0.008))
    assert found.own_secs == 0
    one[2] = dataclasses.replace(one[2], server_cpu_secs=0.001)
    assert fit(100, [one]).server_secs == 0


def test_waiting_is_never_negative() -> None:
    for trainers in (1, 2, 64):
        assert predict(CONSTANTS, Shape(trainers, 3), Link(math.inf, 0.05)).waiting > -1e-9
