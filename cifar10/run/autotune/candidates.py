"""Which towers and threads are worth measuring, and which of them to choose."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Callable

from cifar10.config.train_config import TrainConfig
from cifar10.step.cpu_setting import Setting

# With fewer, batch normalisation would no longer see much of the batch.
_MIN_IMAGES_A_TOWER = 32

_ROUNDS = 8
_MIN_SPEEDUP = 1.03
_SIGNIFICANCE = 0.05


def candidates(config: TrainConfig, rule: Setting, cores: int) -> list[Setting]:
    """The settings to measure: what a flag says is left as it is.

    As many towers as cores, or more of them, run one op on one core each; fewer share the cores.
    The rule's towers try both, but for two towers on two cores: two threads inside ops never won.

    Args:
      config: the run's settings.
      rule: what the run has without --autotune.
      cores: that the process may use.

    Returns:
      Different settings, the rule first.
    """
    found = [rule]
    for towers in _tower_counts(config, rule.num_towers, cores):
        by_towers = (1,) if towers >= cores else (cores,)
        tries_both = towers == rule.num_towers and not towers == cores == 2
        for intra in (1, cores) if tries_both else by_towers:
            setting = Setting(towers, min(towers, cores), intra)
            given = {
                name: value
                for name in dataclasses.asdict(setting)
                if (value := getattr(config, name)) is not None
            }
            found.append(dataclasses.replace(setting, **given))
    return list(dict.fromkeys(found))


def _tower_counts(config: TrainConfig, of_rule: int, cores: int) -> list[int]:
    """One, half as many as the rule has, as many, and twice, or what divides the batch.

    More than the rule's fit more of their work into a core's cache.
    """
    if config.num_towers is not None:
        return [config.num_towers]
    batch = config.train_batch_size
    most = max(of_rule, batch // _MIN_IMAGES_A_TOWER)
    wanted = [min(count, most) for count in (1, of_rule // 2, of_rule, 2 * of_rule)]
    return [max(n for n in range(1, max(1, want) + 1) if batch % n == 0) for want in wanted]


def take_turns(
    settings: Sequence[Setting],
    step_secs: Callable[[Setting], float],
    is_time_over: Callable[[], bool],
) -> dict[Setting, list[float]]:
    """Times the settings in turns, so that what else the machine does meets all of them.

    Those that have been slower so often that they cannot be chosen any more are given up.

    Args:
      settings: the rule first.
      step_secs: trains with a setting; returns seconds a step.
      is_time_over: whether to end after the round.

    Returns:
      Seconds a step by round.
    """
    times: dict[Setting, list[float]] = {setting: [] for setting in settings}
    running = list(settings)
    for _ in range(_ROUNDS):
        for setting in running:
            times[setting].append(step_secs(setting))
        rivals = [one for one in running[1:] if _has_hope(times[settings[0]], times[one])]
        running = [settings[0], *rivals]
        if len(running) == 1 or is_time_over():
            break
    return times


def _has_hope(rule: Sequence[float], times: Sequence[float]) -> bool:
    return _chance(_slower(speedups(rule, times)), _ROUNDS) <= _SIGNIFICANCE


def speedups(rule: Sequence[float], times: Sequence[float]) -> list[float]:
    """How many times as fast as the rule, round by round."""
    return [before / now for before, now in zip(rule, times)]


def choose(times: dict[Setting, list[float]]) -> tuple[Setting, float]:
    """The fastest setting, if it beats the rule by more than the noise: else the rule.

    It has to be three percent faster in the median round, and faster in more rounds than chance
    explains (a one-sided sign test at five percent).

    Args:
      times: seconds a step by round, the rule first.

    Returns:
      The setting, and how many times as fast as the rule it is.
    """
    rule = next(iter(times))
    best, best_speedup = rule, 1.0
    for setting, seconds in times.items():
        ratios = speedups(times[rule], seconds)
        speedup = statistics.median(ratios)
        is_clear = _chance(_slower(ratios), len(ratios)) <= _SIGNIFICANCE
        if is_clear and speedup >= _MIN_SPEEDUP and speedup > best_speedup:
            best, best_speedup = setting, speedup
    return best, best_speedup


def _slower(ratios: Sequence[float]) -> int:
    return sum(ratio <= 1.0 for ratio in ratios)


def _chance(slower: int, rounds: int) -> float:
    """How likely at most so many rounds are slower if it is heads or tails."""
    return sum(math.comb(rounds, count) for count in range(slower + 1)) / 2**rounds
