"""How benchmarks measure: start a training, read its speed, end it; take turns; tell the spread."""

import functools
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from benchmarks.arguments import BenchmarkError, data_flag, words_of
from cifar10.config import flags
from cifar10.config.train_config import TrainConfig
from testbeds.processes import PROGRAM, ROOT, ClusterOfProcesses, cluster, environment

# Settings that a measurement chooses itself: output folders, start and end of training, logging.
_OURS = (
    *("output_dir", "log_dir", "init_checkpoint", "checkpoint_steps", "log_steps", "verbose"),
    *("train_steps", "train_epochs", "max_minutes", "early_stopping_epochs", "stop_at_accuracy"),
)
_FOREVER = 10**9  # steps
_WARM_UP_LINES = 2
_LEAST_LINES = 5
_LOOK_SECS = 0.02
_LINES_A_SEC = 4
_PROGRESS = re.compile(r"\bstep ([\d,]+)/.* ([\d,]+(?:\.\d+)?) images/s")
_Way = TypeVar("_Way")
_Result = TypeVar("_Result")


class Line(NamedTuple):
    """A progress line of cifar10_main.py: the global step, and images/s of the whole job."""

    step: int
    images_per_sec: float


class Cost(NamedTuple):
    """What steady training costs.

    Attributes:
      rates: images/s of the whole job, for each progress line.
      cpu_secs: CPU seconds of each task in a global step, all threads together, by its label.
      sent_bytes: bytes that all tasks together sent over the loopback in a global step.
    """

    rates: list[float]
    cpu_secs: dict[str, float]
    sent_bytes: float

    @property
    def rate(self) -> float:
        """The median images/s of the whole job."""
        return statistics.median(self.rates)


def progress_lines(text: str) -> list[Line]:
    """Returns the progress lines in the output of a trainer."""
    found = _PROGRESS.findall(text)
    return [Line(int(step.replace(",", "")), float(rate.replace(",", ""))) for step, rate in found]


def endless(config: TrainConfig, log_steps: int) -> list[str]:
    """Returns the flags of a training that goes on until it is ended, without --output-dir."""
    steps = [f"--{name}-steps={_FOREVER}" for name in ("train", "checkpoint")]
    return [*words_of(config, _OURS), *steps, f"--log-steps={log_steps}"]


def log_steps_for(rate: float, images: int) -> int:
    """Returns the steps between progress lines that give some lines a second.

    Args:
      rate: images/s of the whole job.
      images: images of a global step.
    """
    return max(1, round(rate / images / _LINES_A_SEC))


def steady(
    outputs: Callable[[], Sequence[str]],
    is_running: Callable[[], bool],
    seconds: float,
    least: int = _LEAST_LINES,
    begin: Callable[[], object] = lambda: None,
) -> list[Line]:
    """Waits until a job has trained steadily for long enough.

    Args:
      outputs: returns what each trainer has printed so far, the chief first.
      is_running: whether the whole job still runs.
      seconds: least duration of steady training.
      least: least number of the chief's progress lines in it.
      begin: is called once, when every trainer has warmed up.

    Returns:
      The chief's lines since then, after the last one before.

    Raises:
      BenchmarkError: the job ended before; the message has its last line.
    """
    first, began = 0, 0.0
    while True:
        still_runs, texts = is_running(), outputs()
        found = [progress_lines(text) for text in texts]
        if not first and found and min(map(len, found)) >= _WARM_UP_LINES:
            first, began = len(found[0]), time.monotonic()
            begin()
        lines = found[0][first - 1 :] if first else []
        if len(lines) > least and time.monotonic() >= began + seconds:
            return lines
        if not still_runs:
            said = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
            errors = [line for line in said if line.startswith("error: ")] or said[-1:]
            why = (errors or ["it printed nothing"])[0]
            raise BenchmarkError(f"training ended before it was measured: {why}")
        time.sleep(_LOOK_SECS)


def measure(
    config: TrainConfig,
    workers: int = 0,
    ps: int = 0,
    *,
    seconds: float = 0.0,
    least: int = _LEAST_LINES,
    log_steps: int = 1,
) -> Cost:
    """Trains on this machine for a while, in a process or a cluster of processes.

    Args:
      config: the settings of the training.
      workers: number of workers beside the chief.
      ps: number of parameter servers.
      seconds: as for `steady`.
      least: as for `steady`.
      log_steps: global steps between two progress lines.

    Raises:
      BenchmarkError: training ended before it was measured.
    """
    words = [*endless(config, log_steps), data_flag(config.data_dir)]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = pathlib.Path(name)
        output = f"--output-dir={folder / 'output'}"
        with cluster(folder, *words, output, num_workers=workers, num_ps=ps) as tasks:
            tasks.start()
            trainers = [label for label in tasks.labels if not label.startswith("ps/")]
            before: list[tuple[dict[str, float], int]] = []
            lines = steady(
                lambda: [tasks.output(label) for label in trainers],
                lambda: all(process.poll() is None for process in tasks.processes.values()),
                seconds,
                least,
                lambda: before.append(_used(tasks)),
            )
            (cpu_before, sent_before), (cpu, sent) = before[0], _used(tasks)
    steps = lines[-1].step - lines[0].step
    cpu_secs = {label: (secs - cpu_before[label]) / steps for label, secs in cpu.items()}
    rates = [line.images_per_sec for line in lines[1:]]
    return Cost(rates, cpu_secs, (sent - sent_before) / steps)


def _used(tasks: ClusterOfProcesses) -> tuple[dict[str, float], int]:
    """Returns the CPU seconds of each task, and the bytes sent over the loopback, so far."""
    device_lines = pathlib.Path("/proc/net/dev").read_text().splitlines()
    (loopback,) = (line for line in device_lines if line.strip().startswith("lo:"))
    cpu_secs = {}
    for label, process in tasks.processes.items():
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        cpu_secs[label] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return cpu_secs, int(loopback.partition(":")[2].split()[8])


def log_steps_of(config: TrainConfig) -> int:
    """Returns `log_steps_for` the rate of a short run."""
    return log_steps_for(measure(config).rate, config.train_batch_size)


def rates_by_flags(
    config: TrainConfig, variants: Mapping[_Way, Sequence[str]], rounds: int, seconds: float
) -> "dict[_Way, list[float]]":
    """Trains with different flags in turns; returns images/s of each round by the variant's name.

    Args:
      config: the settings that all share.
      variants: name -> flags, in the form `--name=value`, which replace those of `config`.
      rounds: number of rounds.
      seconds: least duration of each run.
    """
    log_steps, ways = log_steps_of(config), {}
    for name, words in variants.items():
        replaced = {word.partition("=")[0][2:].replace("-", "_") for word in words}
        replacing = flags.parse([*words_of(config, replaced), *words])
        ways[name] = functools.partial(measure, replacing, seconds=seconds, log_steps=log_steps)
    found = in_turns(ways, rounds)
    return {name: [cost.rate for cost in costs] for name, costs in found.items()}


def run(words: Sequence[str], checkout: pathlib.Path = ROOT) -> Generator[str, None, None]:
    """Runs a training in a process and yields its lines; a caller that closes this ends it.

    Args:
      words: flags of cifar10_main.py.
      checkout: the folder of cifar10_main.py.

    Raises:
      BenchmarkError: the training failed; the message has its last line.
    """
    line, command = "", [sys.executable, PROGRAM.name, *words]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=checkout, env=environment(), **pipes) as process:
        try:
            for line in process.stdout or ():
                yield line
        except BaseException:
            process.terminate()
            process.communicate()
            raise
    if process.returncode:
        raise BenchmarkError(f"`cifar10_main.py {' '.join(words)}` failed: {line.strip()}")


def in_turns(
    ways: Mapping[_Way, Callable[[], _Result]], rounds: int, shows: bool = True
) -> "dict[_Way, list[_Result]]":
    """Measures each way once in each round, so that other load on the machine slows all alike.

    Args:
      ways: name -> function that measures.
      rounds: number of rounds.
      shows: whether to write each result to standard error as soon as it is known.
    """
    found: dict[_Way, list[_Result]] = {way: [] for way in ways}
    for index in range(rounds):
        for way, run in ways.items():
            load = os.getloadavg()[0]
            found[way].append(run())
            if shows:
                said = f"round {index + 1}, {way}: {found[way][-1]} (load {load:.1f})"
                print(said, file=sys.stderr, flush=True)
    return found


def spread(values: Sequence[float]) -> list[float]:
    """Returns the median, the lowest and the highest."""
    return [statistics.median(values), min(values), max(values)]


def quartiles(values: Sequence[float]) -> list[float]:
    """Returns the median, the lower and the upper quartile."""
    return [float(number) for number in np.quantile(values, [0.5, 0.25, 0.75])]


def ratios(first: Sequence[float], others: Sequence[float]) -> list[float]:
    """Returns `first` divided by `others`, round by round."""
    return [value / other for value, other in zip(first, others)]


def machine_text(hardware: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Describes a machine, e.g. `2 cores of a CPU; Python 3.11.7, TensorFlow 2.15.1`.

    Args:
      hardware: as `result.json` records it; GPUs, if there are any, replace the CPU in the text.
      versions: package -> version, as `result.json` records them.
    """
    devices = hardware["gpus"] or [f"{hardware['cores']} cores of {hardware['cpu']}"]
    titles = {"python": "Python", "tensorflow": "TensorFlow", "torch": "PyTorch"}
    used = [f"{title} {versions[key]}" for key, title in titles.items() if key in versions]
    return f"{', '.join(devices)}; {', '.join(used)}"
