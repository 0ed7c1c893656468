from pathlib import Path

import pytest

from benchmarks.scaling.jobs import Figures, Run, Watch, describe, log_steps_for, words_of
from benchmarks.scaling.task import Used, read_used, sent_bytes, used_line
from cifar10.config import flags
from launch.cluster.host_list import on_this_machine


def progress(step: int) -> str:
    """Returns a progress line as cifar10_main.py prints it."""
    return f"epoch 0.1/9  step {step}/1,000  loss 2.3  accuracy 0.1  lr 0.1  9 images/s  1s left"


def watched(*words: str, workers: int = 1) -> Watch:
    config = flags.parse(["--train-batch-size=10", *words])
    run = Run(on_this_machine(workers, 1), config, 0.0, log_steps=2)
    return Watch(run)


def fed(watch: Watch, pace: float = 1.0) -> Figures:
    """Feeds a job of two trainers to `watch` and returns its figures.

    A progress line stands for two steps; the master prints one every second, the worker one every
    two seconds.

    Args:
      watch: the watch of a job with a worker.
      pace: factor of the trainers' speed.
    """
    for second in range(13):
        for task in ("master/0", "worker/0", "ps/0"):
            used = Used(0.5 * second, 1000 * second, 100 * second)
            host = "b" if task == "worker/0" else "a"
            watch.take(task, host, used_line(used), second - 0.01)
        watch.take("master/0", "a", progress(3 * second), float(second) / pace)
        if not second % 2:
            watch.take("worker/0", "b", progress(3 * second + 1), float(second) / pace)
    return watch.figures()


def test_rates_of_all_trainers_add_up() -> None:
    figures = fed(watched())
    # 20 images a second of the master, 10 of the worker.
    assert figures.images_per_sec == pytest.approx(30)
    assert figures.step_secs == pytest.approx((0.5 + 1.0) / 2)
    assert figures.jitter == 0


def test_staleness_is_the_updates_by_others_for_each_of_a_trainers_own() -> None:
    # In a second, the master makes two updates and the worker one. So there is one update by others
    # for the two of the master, and there are two for the one of the worker.
    assert fed(watched("--sync=false")).staleness == pytest.approx(1.0, rel=0.1)
    assert fed(watched()).staleness == 0


def test_use_is_counted_once_a_host() -> None:
    figures = fed(watched())
    assert figures.cpu_cores == pytest.approx({"master/0": 0.5, "worker/0": 0.5, "ps/0": 0.5})
    assert figures.busy_cores == pytest.approx(1.5)
    assert figures.wire_bytes == pytest.approx(2000)
    assert figures.loopback_bytes == pytest.approx(200)


def test_the_steady_part_begins_once_all_trainers_have_warmed_up() -> None:
    watch = watched()
    for second in range(5):
        watch.take("master/0", "a", progress(second), float(second))
        assert not watch.is_steady
    watch.take("worker/0", "b", progress(6), 5.0)
    assert not watch.is_steady
    watch.take("worker/0", "b", progress(7), 6.0)
    assert watch.is_steady


def test_a_tasks_use_is_read_as_it_was_written() -> None:
    used = Used(1.25, 300, 4)
    assert read_used(used_line(used)) == used
    assert read_used(progress(3)) is None


def test_the_loopback_counts_apart() -> None:
    lines = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo:     500       1    0    0    0     0          0         0      600       1    0
  eth0:       7       1    0    0    0     0          0         0       80       1    0
  eth1:       7       1    0    0    0     0          0         0        9       1    0
"""
    assert sent_bytes(lines.splitlines()) == (89, 600)


def test_the_words_of_a_configuration_give_it_again() -> None:
    config = flags.parse(
        ["--num-layers=8", "--sync=false", "--learning-rate=0.05", "--train-steps=9"]
    )
    assert flags.parse(words_of(config, set())) == config
    assert words_of(config, {"train_steps", "sync"}) == ["--num-layers=8", "--learning-rate=0.05"]


def test_the_words_of_a_configuration_need_no_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("num_layers: 20\noptimizer: muon\n", encoding="utf-8")
    config = flags.parse([f"--recipe={file}"])
    file.unlink()
    assert words_of(config, set()) == ["--num-layers=20", "--optimizer=muon"]


def test_lines_come_some_times_a_second() -> None:
    assert [log_steps_for(secs) for secs in (0.002, 0.1, 2.0)] == [125, 2, 1]


def test_a_cluster_in_words() -> None:
    assert describe(on_this_machine(2, 1)) == "1 master, 2 worker, 1 ps"
