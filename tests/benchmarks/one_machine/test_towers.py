"""The comparison of other numbers of towers and threads with those of the rule."""

import re
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.one_machine import towers
from cifar10.config.train_config import TrainConfig
from cifar10.step.cpu_setting import Setting

RULE, MORE = Setting(2, 2, 1), Setting(4, 2, 1)


@pytest.mark.parametrize(
    ("cores", "settings", "expected"),
    [
        (2, {}, [(2, 2, 1), (1, 1, 2), (2, 2, 2), (4, 2, 1)]),
        (8, {}, [(8, 8, 1), (1, 1, 8), (4, 4, 8), (8, 8, 8)]),
        (8, {"train_batch_size": 1024}, [(8, 8, 1), (1, 1, 8), (4, 4, 8), (8, 8, 8), (16, 8, 1)]),
        # Settings with more towers than the rule have at least 32 images per tower.
        (2, {"train_batch_size": 16}, [(2, 2, 1), (1, 1, 2), (2, 2, 2)]),
        (1, {"train_batch_size": 16}, [(1, 1, 1)]),
        # A value that a flag sets is kept.
        (2, {"num_towers": 2}, [(2, 2, 1), (2, 2, 2)]),
        (2, {"num_intra_threads": 1}, [(2, 2, 1), (1, 1, 1), (4, 2, 1)]),
    ],
)
def test_the_rule_is_measured_beside_fewer_and_more_towers(
    cores: int, settings: dict[str, Any], expected: list[tuple[int, int, int]]
) -> None:
    config = TrainConfig(**{"train_batch_size": 128, **settings})
    assert towers.candidates(config, cores) == [Setting(*one) for one in expected]


def test_flags_are_given_for_what_is_faster_in_every_round() -> None:
    *_, last = towers.describe({RULE: [100.0, 90.0, 110.0], MORE: [104.0, 93.0, 115.0]})
    assert last == (
        "faster in every round; set: --num-towers=4 --num-inter-threads=2 --num-intra-threads=1"
    )


@pytest.mark.parametrize("rates", [[120.0, 89.0, 130.0], [101.0, 91.0, 111.0], [90.0, 80.0, 90.0]])
def test_nothing_is_set_for_what_may_be_chance(rates: list[float]) -> None:
    first, second, last = towers.describe({RULE: [100.0, 90.0, 110.0], MORE: rates})
    assert first == f"     100.0 images/s  1.00  {RULE}  (the rule)"
    assert second.endswith(str(MORE))
    assert last == "nothing was clearly faster than the rule: set no flag"


def test_it_measures_real_steps(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--model=mlp --hidden-units=4 --train-batch-size=16 --num_towers=1"
    threads = "--num-inter-threads=1 --num-intra-threads 1"
    assert main(["towers", "--rounds=1", "--", *words.split(), *threads.split()]) == 0
    only, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r" *[\d,]+\.\d images/s  1\.00  --num-towers=1 .*  \(the rule\)", only)
    assert last.startswith("nothing was clearly faster")


def test_what_means_nothing_for_a_step_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--train-batch-size=16", "--num-towers=1", "--sync=false"]
    assert main(["towers", "--", *words]) == 2
    assert "--sync is what this benchmark decides" in capsys.readouterr().err
