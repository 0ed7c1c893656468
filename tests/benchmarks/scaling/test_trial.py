import pytest

from benchmarks.scaling.step_model import Shape
from benchmarks.scaling.trial import machines_of
from testbeds.limited_links import Machine


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
