"""Checks whether other numbers of towers and threads train faster on this CPU than the defaults.

    python -m benchmarks towers -- --train-batch-size=128 --num-layers=20

trains with the flags after `--` for some seconds at a time. It tries the towers and threads that
`cifar10.step.devices.rule` chooses, and one tower, half, as many and twice as many towers as
the rule, each with one intra-op thread and with one for each core. Each measurement is a process of
its own, since a process has only one intra-op thread pool; the settings take turns. Prints
images/s, the median ratio to the rule over the rounds, and the flags of a setting that was faster.
"""

import statistics
from collections.abc import Mapping, Sequence

from benchmarks import arguments, runs
from cifar10.config.settings import flag_name
from cifar10.config.train_config import TrainConfig
from cifar10.host.cpu import count_cores
from cifar10.step.devices import ThreadSetting, rule

# With fewer images per tower, batch normalisation statistics would come from too small a part of
# the batch.
_MIN_IMAGES_A_TOWER = 32
_LEAST_SPEEDUP = 1.03  # median over the rounds; besides, every round must be faster


def main(argv: Sequence[str]) -> None:
    """Measures the settings and prints which flags to set."""
    parser = arguments.new_parser("towers", __doc__, rounds=3, seconds=5.0)
    options = arguments.parse(parser, argv)
    found = candidates(options.config, count_cores())
    settings = {setting: flags_of(setting) for setting in found}
    rates = runs.rates_by_flags(options.config, settings, options.rounds, options.seconds)
    print("\n".join(describe(rates)))


def candidates(config: TrainConfig, cores: int) -> list[ThreadSetting]:
    """Returns the settings to measure, the rule's first; values that flags set are kept.

    Args:
      config: the training settings.
      cores: number of cores that a process may use.
    """
    first, batch = rule(config, cores), config.train_batch_size
    most = max(first.num_towers, batch // _MIN_IMAGES_A_TOWER)
    counts = {1, first.num_towers // 2, first.num_towers, 2 * first.num_towers}
    found = [first]
    for towers in sorted(n for n in counts if 0 < n <= most and batch % n == 0):
        for intra in sorted({1, cores}):
            setting = ThreadSetting(towers, min(towers, cores), intra)
            given = {name: getattr(config, name) for name in setting._fields if config.is_set(name)}
            found.append(setting._replace(**given))
    return list(dict.fromkeys(found))


def flags_of(setting: ThreadSetting) -> list[str]:
    """Returns the command-line flags that give a setting."""
    return [f"{flag_name(name)}={value}" for name, value in setting._asdict().items()]


def describe(rates: Mapping[ThreadSetting, Sequence[float]]) -> list[str]:
    """Returns lines to print: the rates of each setting, then the flags to set.

    Args:
      rates: setting -> images/s of each round; the rule's setting comes first.
    """
    (first, of_rule), *_ = rates.items()
    ratios = {setting: runs.ratios(found, of_rule) for setting, found in rates.items()}
    lines = [
        f"{statistics.median(found):10,.1f} images/s  {statistics.median(ratios[setting]):.2f}  "
        f"{' '.join(flags_of(setting))}{'  (the rule)' if setting == first else ''}"
        for setting, found in rates.items()
    ]
    best = max(ratios, key=lambda setting: statistics.median(ratios[setting]))
    is_clear = min(ratios[best]) > 1 and statistics.median(ratios[best]) >= _LEAST_SPEEDUP
    if best == first or not is_clear:
        return [*lines, "nothing was clearly faster than the rule: set no flag"]
    return [*lines, f"faster in every round; set: {' '.join(flags_of(best))}"]
