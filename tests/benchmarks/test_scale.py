import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks import runs, scale
from benchmarks.__main__ import main
from benchmarks.scale import (
    Constants,
    Link,
    Measured,
    Shape,
    cycle_secs,
    fit,
    images_per_sec,
    predict,
)
from cifar10.config import flags
from cifar10.config.train_config import TrainConfig

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


def test_the_constants_are_those_of_runs_alone_and_with_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = []

    def measure(config: TrainConfig, *, ps: int, seconds: float, log_steps: int) -> runs.Cost:
        measured.append((ps, log_steps))
        # 100 ms alone and 120 ms with servers, each of which takes 12 ms of CPU time a step.
        rate = 64 / (0.12 if ps else 0.1)
        cpu = {"master/0": 0.1, **{f"ps/{index}": 0.012 for index in range(ps)}}
        return runs.Cost([rate] * 5, cpu, 1e6 if ps else 0.0)

    monkeypatch.setattr(runs, "measure", measure)
    found = scale.measure_constants(flags.parse(["--train-batch-size=64"]), 1.0)
    # A progress line comes every quarter of a second as soon as the length of a step is known.
    assert measured == [(0, 1), (1, 2), (2, 2), (0, 2), (1, 2), (2, 2), (0, 2), (1, 2), (2, 2)]
    assert (found.batch_size, found.compute_secs, found.jitter) == (64, pytest.approx(0.1), 0.0)
    assert found.step_bytes == pytest.approx(1e6)
    assert found.server_cpu(1) == pytest.approx(0.012)
    assert found.own_secs == pytest.approx(0.008)


def test_constants_that_were_kept_predict_without_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "constants.json"
    file.write_text(json.dumps(dataclasses.asdict(CONSTANTS)))
    words = ["--link", "1Gbit", "--round-trip-ms", "1", "--trainers", "1", "--ps", "1"]
    assert main(["scale", "--constants", str(file), *words]) == 0
    shown = capsys.readouterr().out
    assert "a step of 100 images: 100.0 ms of computing" in shown
    assert "| 1 | 1 | 643 | 64 % | 643 | 64 % | compute |" in shown  # 100 images in 155.5 ms
    file.write_text("{}")
    assert main(["scale", "--constants", str(file)]) == 2
