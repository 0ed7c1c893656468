"""Towers and threads of a CPU, by the rule."""

from typing import Any

import pytest

from cifar10.config import flags
from cifar10.config.train_config import TrainConfig
from cifar10.step.devices import Setting, rule


def test_a_setting_reads_as_its_flags():
    setting = Setting(2, 3, 1)
    assert str(setting) == "--num-towers=2 --num-inter-threads=3 --num-intra-threads=1"
    config = flags.parse(setting.as_flags())
    assert (config.num_towers, config.num_inter_threads, config.num_intra_threads) == (2, 3, 1)


@pytest.mark.parametrize(
    ("cores", "settings", "expected"),
    [
        (2, {}, (2, 2, 1)),
        (8, {}, (8, 8, 1)),
        # 8 images a tower at least: fewer towers share the cores inside ops.
        (64, {}, (16, 16, 64)),
        (2, {"train_batch_size": 16}, (2, 2, 1)),
        (2, {"train_batch_size": 15}, (1, 1, 2)),
        # Towers of equal size.
        (2, {"train_batch_size": 129}, (1, 1, 2)),
        (6, {}, (4, 4, 6)),
        (8, {"train_batch_size": 40}, (5, 5, 8)),
        # What a flag says is left as it is; 0 threads: TensorFlow chooses.
        (2, {"num_towers": 4}, (4, 4, 1)),
        (8, {"num_towers": 4}, (4, 4, 8)),
        (2, {"num_intra_threads": 0, "num_inter_threads": 7}, (2, 7, 0)),
        (2, {"num_inter_threads": 0}, (2, 0, 1)),
    ],
)
def test_a_tower_a_core_or_fewer_that_share_them(cores: int, settings: Any, expected: Any):
    assert rule(TrainConfig(**{"train_batch_size": 128, **settings}), cores) == Setting(*expected)
