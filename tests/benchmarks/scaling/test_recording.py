import pytest

from benchmarks.scaling.measured_run import Figures, Run
from benchmarks.scaling.recording import Recording
from benchmarks.scaling.task import Used, used_line
from cifar10.config import flags
from launch.cluster.host_list import on_this_machine


def progress(step: int) -> str:
    """Returns a progress line as cifar10_main.py prints it."""
    return f"epoch 0.1/9  step {step}/1,000  loss 2.3  accuracy 0.1  lr 0.1  9 images/s  1s left"


def recorded(*words: str, workers: int = 1) -> Recording:
    config = flags.parse(["--train-batch-size=10", *words])
    run = Run(on_this_machine(workers, 1), config, 0.0, log_steps=2)
    return Recording(run)


def fed(recording: Recording, pace: float = 1.0) -> Figures:
    """Feeds a job of two trainers to `recording` and returns its figures.

    A progress line stands for two steps; the master prints one every second, the worker one every
    two seconds.

    Args:
      recording: the recording of a job with a worker.
      pace: factor of the trainers' speed.
    """
    for second in range(13):
        for task in ("master/0", "worker/0", "ps/0"):
            used = Used(0.5 * second, 1000 * second, 100 * second)
            host = "b" if task == "worker/0" else "a"
            recording.take(task, host, used_line(used), second - 0.01)
        recording.take("master/0", "a", progress(3 * second), float(second) / pace)
        if not second % 2:
            recording.take("worker/0", "b", progress(3 * second + 1), float(second) / pace)
    return recording.figures()


def test_rates_of_all_trainers_add_up() -> None:
    figures = fed(recorded())
    # 20 images a second of the master, 10 of the worker.
    assert figures.images_per_sec == pytest.approx(30)
    assert figures.step_secs == pytest.approx((0.5 + 1.0) / 2)
    assert figures.jitter == 0


def test_staleness_is_the_updates_by_others_for_each_of_a_trainers_own() -> None:
    # In a second, the master makes two updates and the worker one. So there is one update by others
    # for the two of the master, and there are two for the one of the worker.
    assert fed(recorded("--sync=false")).staleness == pytest.approx(1.0, rel=0.1)
    assert fed(recorded()).staleness == 0


def test_use_is_counted_once_a_host() -> None:
    figures = fed(recorded())
    assert figures.cpu_cores == pytest.approx({"master/0": 0.5, "worker/0": 0.5, "ps/0": 0.5})
    assert figures.busy_cores == pytest.approx(1.5)
    assert figures.wire_bytes == pytest.approx(2000)
    assert figures.loopback_bytes == pytest.approx(200)


def test_the_steady_part_begins_once_all_trainers_have_warmed_up() -> None:
    recording = recorded()
    for second in range(5):
        recording.take("master/0", "a", progress(second), float(second))
        assert not recording.is_steady
    recording.take("worker/0", "b", progress(6), 5.0)
    assert not recording.is_steady
    recording.take("worker/0", "b", progress(7), 6.0)
    assert recording.is_steady
