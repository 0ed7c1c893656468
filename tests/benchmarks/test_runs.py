import itertools

import pytest

from benchmarks import runs
from benchmarks.arguments import BenchmarkError
from benchmarks.runs import Line, progress_lines, quartiles, steady


def line(step: int, rate: str = "9") -> str:
    """Returns a progress line as cifar10_main.py prints it."""
    return (
        f"epoch 0.1/9  step {step:,}/2,000  loss 2.3  accuracy 0.1  lr 0.1  {rate} images/s "
        "(5 here)  1s left\n"
    )


def test_progress_lines_have_a_step_and_the_rate_of_the_whole_job() -> None:
    text = f"training to step 2,000\n{line(1_999, '1,024')}saved: here\n{line(2_000, '9.5')}epoch 0"
    assert progress_lines(text) == [Line(1_999, 1024.0), Line(2_000, 9.5)]


def test_the_steady_part_begins_once_every_trainer_has_warmed_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda secs: None)
    monkeypatch.setattr("time.monotonic", itertools.count().__next__)
    master, worker, begun = [""], [""], []
    steps = itertools.count(1)

    def outputs() -> list[str]:
        step = next(steps)
        master[0] += line(step)
        worker[0] += line(step) * (step in (5, 8))
        return [master[0], worker[0]]

    found = steady(outputs, lambda: True, 2.0, 3, lambda: begun.append(len(master[0])))
    assert [one.step for one in found] == [8, 9, 10, 11, 12]
    assert len(begun) == 1


def test_a_job_that_ends_before_it_was_measured_says_why() -> None:
    for said, why in (
        ("starts\nerror: no data\nbye\n", "error: no data$"),
        ("", "printed nothing"),
    ):
        with pytest.raises(BenchmarkError, match=f"ended before it was measured: .*{why}"):
            steady(lambda said=said: [said], lambda: False, 1.0)  # type: ignore[misc]


def test_ways_take_turns() -> None:
    order: list[str] = []
    found = runs.in_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2)
    assert order == ["a", "b", "a", "b"]
    assert {way: len(results) for way, results in found.items()} == {"a": 2, "b": 2}


def test_figures_of_the_spread() -> None:
    assert runs.spread([3.0, 1.0, 8.0]) == [3.0, 1.0, 8.0]
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == [3.0, 2.0, 4.0]
    assert quartiles([7.0]) == [7.0, 7.0, 7.0]
    assert runs.ratios([6.0, 8.0], [2.0, 4.0]) == [3.0, 2.0]
    assert runs.log_steps_for(rate=1_600, images=16) == 25
