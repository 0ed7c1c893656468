import argparse
import time

import pytest

from benchmarks.scaling import jobs
from benchmarks.scaling.measured_run import Figures, Run
from benchmarks.scaling.step_model import Shape
from benchmarks.scaling.trial import Reference, Trial, machines_of
from cifar10.config import flags
from testbeds.limited_links import Machine, why_not


@pytest.mark.parametrize(
    ("cores", "shape", "machines"),
    [
        ({0, 1, 2}, Shape(2, 1), [Machine(0, "0"), Machine(0, "1"), Machine(1, "2")]),
        ({0, 1}, Shape(1, 2), [Machine(0, "0"), Machine(1, "1"), Machine(1, "1")]),
        # No core is left for the server, so it may use those of the trainers.
        ({4, 7}, Shape(2, 1), [Machine(0, "4"), Machine(0, "7"), Machine(1, "4,7")]),
    ],
)
def test_a_trainer_has_a_core_of_its_own_and_servers_what_is_left(
    cores: set[int], shape: Shape, machines: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: cores)
    assert machines_of(shape) == machines


def test_trainers_with_shares_take_turns_on_the_cores_and_servers_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    assert machines_of(Shape(3, 1), 0.06) == [
        Machine(0, "0", 0.06),
        Machine(0, "1", 0.06),
        Machine(0, "0", 0.06),
        Machine(1, "0,1", None, is_preferred=True),
    ]


def measured_once_all_are_ready(run: Run) -> Figures:
    """Stands for `jobs.measure`: waits until the measurement may begin; runs in other processes."""
    deadline = time.monotonic() + 60
    while not run.may_begin():
        if time.monotonic() > deadline:
            raise TimeoutError("the others are not ready")
        time.sleep(0.01)
    return Figures(100.0, 0.5, 0.1, 0.0, {}, 0.0, 0.0)


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_processes_alone_are_measured_once_all_of_them_train(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "measure", measured_once_all_are_ready)
    options = argparse.Namespace(config=flags.parse([]), seconds=1.0, share=None)
    assert Trial(options).reference(3) == Reference(0.5, 0.1)
