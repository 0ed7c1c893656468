"""Checks whether other numbers of towers and threads train faster on this CPU than the defaults.

    python -m benchmarks towers -- --train-batch-size=128 --num-layers=20

times the bare step (`python -m benchmarks bare-step`) with the training flags after `--`. It tries
the towers and threads that `cifar10.step.cpu_setting.rule` chooses, one tower, half and twice as
many towers as the rule, and the rule's towers with the other number of intra-op threads. Each
measurement is a process of its own, since a process has only one intra-op thread pool; the settings
take turns. Prints images/s, the median ratio to the rule over the rounds, and the flags of a
setting that was faster.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence

from benchmarks import arguments
from benchmarks.errors import BenchmarkError
from cifar10.config.train_config import TrainConfig
from cifar10.host.cpu import count_cores
from cifar10.step.cpu_setting import Setting, rule
from launch.cluster.host_list import ROOT

# With fewer images per tower, batch normalisation statistics would come from too small a part of
# the batch.
_MIN_IMAGES_A_TOWER = 32
_LEAST_SPEEDUP = 1.03  # median over the rounds; besides, every round must be faster


def main(argv: Sequence[str]) -> None:
    """Measures the settings and prints which flags to set."""
    parser = arguments.new_parser("towers", __doc__)
    parser.add_argument("--rounds", type=arguments.at_least_one, default=3, help="turns (3)")
    ours = arguments.parse(parser, argv)
    _, words = arguments.split(argv)
    settings = candidates(ours.config, count_cores())
    rates: dict[Setting, list[float]] = {setting: [] for setting in settings}
    for _ in range(ours.rounds):
        for setting in settings:
            rates[setting].append(_images_per_sec(words, setting))
    print("\n".join(describe(rates)))


def candidates(config: TrainConfig, cores: int) -> list[Setting]:
    """Returns the settings to measure, the rule's first; values that flags set are kept.

    With at least as many towers as cores, an op gets one thread; with fewer, it gets all cores. The
    rule's number of towers is measured with both.

    Args:
      config: the training settings.
      cores: number of cores that a process may use.
    """
    first = rule(config, cores)
    found = [first]
    for towers in _tower_counts(config, first.num_towers):
        threads = {1, cores} if towers == first.num_towers else {1 if towers >= cores else cores}
        for intra in sorted(threads):
            setting = Setting(towers, min(towers, cores), intra)
            given = {
                name: getattr(config, name)
                for name in dataclasses.asdict(setting)
                if getattr(config, name) is not None
            }
            found.append(dataclasses.replace(setting, **given))
    return list(dict.fromkeys(found))


def _tower_counts(config: TrainConfig, of_rule: int) -> list[int]:
    """Returns 1, half, once and twice the rule's towers, each reduced to a divisor of the batch."""
    if config.num_towers is not None:
        return [config.num_towers]
    batch = config.train_batch_size
    most = max(of_rule, batch // _MIN_IMAGES_A_TOWER)
    wanted = [max(1, min(count, most)) for count in (1, of_rule // 2, of_rule, 2 * of_rule)]
    return [max(n for n in range(1, want + 1) if batch % n == 0) for want in wanted]


def _images_per_sec(words: Sequence[str], setting: Setting) -> float:
    """Runs the bare-step benchmark in a process of its own and returns its images/s.

    Raises:
      BenchmarkError: the process failed; the message gives its last error line.
    """
    given = {word.partition("=")[0].replace("_", "-") for word in words}
    more = [word for word in setting.as_flags() if word.partition("=")[0] not in given]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "bare-step", *words, *more, "--num-gpus=0"],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip() or "it says nothing").splitlines()[-1]
        raise BenchmarkError(f"{setting}: exit code {done.returncode}: {reason}")
    rate: float = json.loads(done.stdout.splitlines()[-1])["images_per_sec"]
    return rate


def describe(rates: Mapping[Setting, Sequence[float]]) -> list[str]:
    """Returns lines to print: the figures of each setting, then the flags to set.

    Args:
      rates: setting -> images/s of each round; the rule's setting comes first.
    """
    (first, of_rule), *_ = rates.items()
    ratios = {
        setting: [ours / theirs for ours, theirs in zip(found, of_rule)]
        for setting, found in rates.items()
    }
    lines = [
        f"{statistics.median(found):10,.1f} images/s  {statistics.median(ratios[setting]):.2f}  "
        f"{setting}{'  (the rule)' if setting == first else ''}"
        for setting, found in rates.items()
    ]
    best = max(ratios, key=lambda setting: statistics.median(ratios[setting]))
    is_clear = min(ratios[best]) > 1 and statistics.median(ratios[best]) >= _LEAST_SPEEDUP
    if best == first or not is_clear:
        return [*lines, "nothing was clearly faster than the rule: set no flag"]
    return [*lines, f"faster in every round; set: {best}"]
