"""--autotune: which settings are measured, on which steps, and which one is chosen."""

import dataclasses

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.run.autotune.candidates import candidates, choose, take_turns
from cifar10.run.autotune.sample import image_counts, small_step
from cifar10.step.cpu_setting import Setting

RULE = Setting(2, 2, 1)
OTHER, THIRD, FOURTH = Setting(1, 1, 2), Setting(4, 2, 1), Setting(2, 2, 2)


def numbers(settings: list[Setting]) -> list[tuple[int, int, int]]:
    return [(one.num_towers, one.num_inter_threads, one.num_intra_threads) for one in settings]


@pytest.mark.parametrize(
    ("cores", "rule", "batch", "expected"),
    [
        (2, (2, 2, 1), 128, [(2, 2, 1), (1, 1, 2), (4, 2, 1)]),
        (3, (3, 3, 1), 96, [(3, 3, 1), (1, 1, 3), (3, 3, 3)]),
        (4, (4, 4, 1), 256, [(4, 4, 1), (1, 1, 4), (2, 2, 4), (4, 4, 4), (8, 4, 1)]),
        # 32 images a tower at least, unless the rule has fewer.
        (2, (1, 1, 2), 8, [(1, 1, 2), (1, 1, 1)]),
        (2, (2, 2, 1), 16, [(2, 2, 1), (1, 1, 2)]),
        # Towers of equal size.
        (4, (2, 2, 4), 129 * 2, [(2, 2, 4), (1, 1, 4), (2, 2, 1), (3, 3, 4)]),
        (6, (4, 4, 6), 128, [(4, 4, 6), (1, 1, 6), (2, 2, 6), (4, 4, 1)]),
        (16, (16, 16, 1), 128, [(16, 16, 1), (1, 1, 16), (8, 8, 16), (16, 16, 16)]),
        (64, (16, 16, 64), 128, [(16, 16, 64), (1, 1, 64), (8, 8, 64), (16, 16, 1)]),
        (1, (1, 1, 1), 128, [(1, 1, 1), (2, 1, 1)]),
        (1, (1, 1, 1), 16, [(1, 1, 1)]),
    ],
)
def test_candidates_are_the_rule_then_fewer_and_more_towers(cores, rule, batch, expected):
    config = TrainConfig(train_batch_size=batch)
    assert numbers(candidates(config, Setting(*rule), cores)) == expected


@pytest.mark.parametrize(
    ("flags", "rule", "expected"),
    [
        ({"num_towers": 2}, (2, 2, 1), [(2, 2, 1)]),
        ({"num_towers": 1}, (1, 1, 2), [(1, 1, 2), (1, 1, 1)]),
        ({"num_towers": 8}, (8, 8, 1), [(8, 8, 1), (8, 2, 1), (8, 2, 2)]),
        ({"num_intra_threads": 1}, (2, 2, 1), [(2, 2, 1), (1, 1, 1), (4, 2, 1)]),
        ({"num_inter_threads": 0}, (2, 0, 1), [(2, 0, 1), (1, 0, 2), (4, 0, 1)]),
        ({"num_towers": 1, "num_inter_threads": 3, "num_intra_threads": 3}, (1, 3, 3), [(1, 3, 3)]),
    ],
)
def test_what_a_flag_says_stays_in_every_candidate(flags, rule, expected):
    found = candidates(TrainConfig(train_batch_size=128, **flags), Setting(*rule), 2)
    assert numbers(found) == expected


@pytest.mark.parametrize(
    ("seconds", "chosen", "speedup"),
    [
        ([1 / 1.05] * 8, OTHER, 1.05),
        ([1 / 1.02] * 8, RULE, 1.0),  # less than three percent
        ([0.8] * 7 + [1.1], OTHER, 1.25),  # so few by chance: 9 of 256 times
        ([0.8] * 6 + [1.1] * 2, RULE, 1.0),  # 37 of 256 times
        ([0.8] * 5, OTHER, 1.25),  # 1 of 32 times
        ([0.8] * 4, RULE, 1.0),  # 1 of 16 times
        ([0.8] * 4 + [1.1], RULE, 1.0),
        ([0.5] * 2, RULE, 1.0),
        ([1.2] * 8, RULE, 1.0),
    ],
)
def test_a_setting_is_chosen_only_if_it_beats_the_rule_by_more_than_the_noise(
    seconds, chosen, speedup
):
    setting, gain = choose({RULE: [1.0] * 8, OTHER: seconds})
    assert setting == chosen
    assert gain == pytest.approx(speedup)


def test_rounds_are_compared_not_the_hours_of_a_machine():
    # Everything takes twice as long in half of the rounds.
    slow = [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 2.0]
    setting, gain = choose({RULE: slow, OTHER: [0.9 * one for one in slow]})
    assert (setting, gain) == (OTHER, pytest.approx(1 / 0.9))


def test_the_fastest_of_those_that_beat_the_rule_is_chosen():
    times = {RULE: [1.0] * 7, OTHER: [0.9] * 7, THIRD: [0.8] * 7}
    assert choose(times) == (THIRD, pytest.approx(1.25))


def test_settings_take_turns_and_those_without_hope_are_given_up():
    turns: list[Setting] = []
    seconds = {RULE: 1.0, OTHER: 0.99, THIRD: 1.05, FOURTH: 1.2}

    def step_secs(setting: Setting) -> float:
        turns.append(setting)
        return seconds[setting]

    times = take_turns([RULE, OTHER, THIRD, FOURTH], step_secs, lambda: False)
    everyone = [RULE, OTHER, THIRD, FOURTH]
    assert turns == everyone * 2 + everyone[:2] * 6
    assert times == {RULE: [1.0] * 8, OTHER: [0.99] * 8, THIRD: [1.05] * 2, FOURTH: [1.2] * 2}


@pytest.mark.parametrize(
    ("seconds", "rounds"),
    [
        ([0.9] * 8, 8),
        ([1.2, 1.0], 2),  # slower or the same in two rounds
        ([1.2, 0.9, 0.9, 1.0], 4),
        ([0.8] * 7 + [1.1], 8),
        ([1.1] + [0.8] * 7, 8),
        ([1.1] + [0.8] * 5 + [1.1], 7),
    ],
)
def test_a_setting_is_given_up_once_it_cannot_be_chosen_any_more(seconds, rounds):
    of_other = iter(seconds)
    times = take_turns(
        [RULE, OTHER], lambda one: 1.0 if one == RULE else next(of_other), lambda: False
    )
    assert len(times[OTHER]) == rounds
    assert rounds == 8 or choose(times) == (RULE, 1.0)


@pytest.mark.parametrize("limit", [1, 7])
def test_the_rounds_end_with_the_time(limit):
    over = iter([False] * (limit - 1) + [True])
    times = take_turns([RULE, OTHER], lambda one: 1.0 if one == RULE else 0.9, lambda: next(over))
    assert len(times[RULE]) == limit


@pytest.mark.parametrize(
    ("settings", "layers"),
    [
        ({}, 8),
        ({"num_layers": 8}, 8),
        ({"num_layers": 110, "model": "resnet_v2"}, 8),
        ({"model": "fastnet"}, None),
        ({"model": "mlp", "hidden_units": 7}, None),
    ],
)
def test_a_resnet_is_measured_with_a_block_of_each_stage(settings, layers):
    config = TrainConfig(train_batch_size=64, precision="bf16", **settings)
    assert small_step(config, 32) == dataclasses.replace(
        config, num_layers=layers, train_batch_size=32, num_gpus=0
    )


@pytest.mark.parametrize(
    ("batch", "towers", "first", "number"),
    [
        (2048, (1, 2, 4), 128, 481),  # 128, 132, ... 2,048
        (128, (1, 2, 4), 128, 1),
        (16, (1, 2), 16, 1),
        (258, (1, 2, 3), 96, 28),
        (1000, (1, 8, 10), 320, 18),  # 320, 360, ... 1,000
    ],
)
def test_a_step_has_so_many_images_that_each_setting_can_share_them_out(
    batch, towers, first, number
):
    settings = [Setting(count, 2, 1) for count in towers]
    counts = image_counts(batch, settings)
    assert (counts[0], counts[-1], len(counts)) == (first, batch, number)
    assert all(count % tower == 0 for count in counts for tower in towers)
