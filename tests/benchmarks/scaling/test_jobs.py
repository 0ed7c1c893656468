from pathlib import Path

import pytest

from benchmarks.scaling.jobs import Watch, words_of
from benchmarks.scaling.measured_run import Run
from benchmarks.scaling.task import Used, read_used, sent_bytes, used_line
from cifar10.config import flags
from launch.cluster.host_list import on_this_machine


def test_a_tasks_use_is_read_as_it_was_written() -> None:
    used = Used(1.25, 300, 4)
    assert read_used(used_line(used)) == used
    assert read_used("epoch 0.1/9  step 3/1,000  loss 2.3") is None


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


def test_each_condition_is_measured_once_all_trainers_take_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[object] = []
    now, ready = [0.0], [False]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("os.kill", lambda pid, signum: happened.append("end"))
    run = Run(
        on_this_machine(1, 1),
        flags.parse(["--train-batch-size=10"]),
        4.0,
        log_steps=1,
        conditions=(lambda: happened.append("fast"), lambda: happened.append("slow")),
        may_begin=lambda: ready[0],
        stepping=happened.append,
    )
    watch = Watch(run)

    def train(first: int, last: int, pace: float) -> None:
        for step in range(first, last):
            now[0] += pace
            for task, host in (("master/0", "a"), ("worker/0", "b")):
                watch.task_line(task, host, used_line(Used(0.1 * step, 1000 * step, 0)))
                watch.task_line(task, host, f"step {step}/900  9 images/s")

    train(1, 3, 1.0)
    assert happened == ["a", "b"]
    ready[0] = True
    train(3, 5, 1.0)
    assert happened == ["a", "b", "fast"]
    train(5, 12, 1.0)
    assert (happened[3:], watch.has_enough) == (["slow"], False)
    train(12, 20, 2.0)
    assert (happened[4:], watch.has_enough) == (["end"], True)
    assert [one.images_per_sec for one in watch.figures] == pytest.approx([20, 10])
    watch.close()
