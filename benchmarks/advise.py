"""Finds the fastest way to train on your own machine or hosts, by trying the ways.

    python -m benchmarks advise -- --num-layers=44 --train-batch-size=128
    python -m benchmarks advise --hosts ip0,ip1 -- --train-batch-size=128

The ways are one process with several towers, several workers on one host, and workers and parameter
servers on separate hosts; synchronous or asynchronous; with different numbers of parameter servers.
In each round, each way trains for some seconds by the command that starts it, and is ended.
`--train-batch-size` is that of a trainer, as always. Hosts need what training needs
(docs/launch.md). Of ways about as fast as the fastest, the best is the one whose gradients are the
least stale, then that with updates of the fewest images, then that with the fewest tasks.
"""

import argparse
import contextlib
import dataclasses
import functools
import pathlib
import re
import shlex
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import yaml

from benchmarks import arguments, runs
from benchmarks.arguments import BenchmarkError
from benchmarks.tables import as_markdown
from cifar10.host.cpu import count_cores
from testbeds.processes import PROGRAM, ROOT, environment, start_process

_MOST_TRAINERS = 4  # on one host, where more trainers only share its memory and cores
_AS_GOOD = 0.95  # share of the fastest rate that counts as equal: runs of the same way differ more
_END_SECS = 60.0  # for the launcher to end its tasks
_TASK = re.compile(r"\[((?:master|worker)/\d+)\b[^]]*\] (.*)")

Cluster = dict[str, Any]  # the content of a cluster file


@dataclasses.dataclass(frozen=True, eq=False)
class Way:
    """A way to train.

    Attributes:
      title: description for tables and messages.
      trainers: number of processes that train.
      ps: number of parameter servers.
      sync: whether updates are synchronous.
      cluster: the content of its cluster file, where it runs on hosts that the user named.
    """

    title: str
    trainers: int
    ps: int
    sync: bool = False
    cluster: Optional[Cluster] = None

    @property
    def label(self) -> str:
        """Names the way."""
        return f"{self.title}, {self.updates}"

    @property
    def updates(self) -> str:
        """How gradients become updates, for tables and messages."""
        if self.trainers == 1:
            return "by itself"
        return "synchronous" if self.sync else "asynchronous"

    @property
    def staleness(self) -> int:
        """Mean number of updates by others since a gradient's weights were read.

        Of all updates between two of a trainer, the others make trainers - 1 on average.
        """
        return 0 if self.sync else self.trainers - 1

    def command(self, words: Sequence[str], file: pathlib.Path, *more: str) -> list[str]:
        """Returns the words after `python` that train this way.

        Args:
          words: training flags.
          file: where to write the cluster file, if the command needs one.
          more: further flags of the launcher, if it is used.
        """
        flags = [*words, *(["--sync=false"] if self.trainers > 1 and not self.sync else [])]
        if self.cluster is not None:
            file.write_text(yaml.safe_dump(self.cluster, sort_keys=False), encoding="utf-8")
            where = ["--cluster", str(file)]
        elif self.trainers == 1:
            return [PROGRAM.name, *flags]
        else:
            where = ["--on", "local", "--workers", str(self.trainers - 1), "--ps", str(self.ps)]
        return ["-m", "launch", "up", *where, *more, "--", *flags]


def main(argv: Sequence[str]) -> int:
    """Measures every way, and prints the table and the command of the best way."""
    options = _parse(argv)
    config, images = options.config, options.config.train_batch_size
    hosts = hosts_of(options)
    ways = ways_on_hosts(hosts) if hosts else ways_on_this_machine(count_cores())
    if not hosts:  # The ways run in the folder of this checkout.
        words = [*arguments.words_of(config, {"data_dir"}), arguments.data_flag(config.data_dir)]
        config = arguments.training_config(words)
    rates: dict[Way, list[float]] = {way: [] for way in ways}
    log_steps = 1
    for index in range(options.rounds):
        for way in list(rates):
            try:
                rate = _rate(way, runs.endless(config, log_steps), options.seconds)
            except BenchmarkError as error:
                del rates[way]
                print(f"{way.label}: left out: {error}")
                continue
            log_steps = runs.log_steps_for(rate, images)
            rates[way].append(rate)
            print(f"round {index + 1}: {way.label}: {rate:,.0f} images/s", flush=True)
    if not rates:
        raise BenchmarkError("no way of training could be measured; see above")
    print(table_of(rates, images))
    best = best_of(rates, images)
    print(f"best: {best.label}, {statistics.median(rates[best]):,.0f} images/s")
    command = best.command(arguments.words_of(options.config), options.out)
    print(f"python {shlex.join(command)}")
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = arguments.new_parser("advise", __doc__, rounds=2, seconds=10.0)
    parser.add_argument("--hosts", metavar="IP0,IP1", help="default: this machine alone")
    parser.add_argument("--python", metavar="PATH", help="the training's Python on --hosts")
    parser.add_argument("--workdir", metavar="DIR", help="the folder with the code on --hosts")
    text = "gets the best way's cluster, where it has hosts (advised.yaml)"
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("advised.yaml"), help=text)
    return arguments.parse(parser, argv)


def hosts_of(options: argparse.Namespace) -> Optional[Cluster]:
    """Returns the content of a cluster file with the user's hosts; None: this machine alone."""
    given = {"python": options.python, "workdir": options.workdir}
    if options.hosts:
        parts = [word.strip().rpartition("@") for word in options.hosts.split(",")]
        hosts = [{"name": name, **({"user": user} if user else {})} for user, _, name in parts]
        return {"hosts": hosts, **{name: value for name, value in given.items() if value}}
    if any(given.values()):
        raise BenchmarkError("--python and --workdir go with --hosts")
    return None


def ways_on_this_machine(cores: int) -> list[Way]:
    """Returns one process; 2 trainers, and as many as cores (2 to 4), with one ps and with two."""
    ways = [Way("one process", 1, 0)]
    for trainers in sorted({2, max(2, min(_MOST_TRAINERS, cores))}):
        for ps in (1, 2):
            ways += _both(Way(f"{trainers} trainers and {ps} ps here", trainers, ps))
    return ways


def ways_on_hosts(cluster: Cluster) -> list[Way]:
    """Returns the ways to train on the hosts of a cluster."""
    every = [host["name"] for host in cluster["hosts"]]
    first, rest = every[0], every[1:]

    def placed(title: str, trainers: Sequence[str], ps: Sequence[str]) -> Way:
        tasks = {"master": trainers[:1], "worker": trainers[1:], "ps": ps}
        hosts = []
        for host in cluster["hosts"]:
            counts = {role: names.count(host["name"]) for role, names in tasks.items()}
            if any(counts.values()):
                hosts.append({**host, "roles": {role: n for role, n in counts.items() if n}})
        return Way(title, len(trainers), len(ps), cluster={**cluster, "hosts": hosts})

    ways = [placed(f"one process on {first}", [first], [])]
    ways += _both(placed(f"2 trainers and 1 ps on {first}", [first] * 2, [first]))
    if rest:
        for count in sorted({1, len(every) // 2, len(every)}):
            title = f"{len(every)} trainers on {len(every)} hosts, {count} ps beside them"
            ways += _both(placed(title, every, every[:count]))
        title = f"ps on {first}, {len(rest)} trainer{'s' * (len(rest) > 1)} on the other hosts"
        ways += _both(placed(title, rest, [first]))
    return ways


def _both(way: Way) -> list[Way]:
    """Returns the way asynchronous and synchronous, or only once if it has a single trainer."""
    return [way, dataclasses.replace(way, sync=True)] if way.trainers > 1 else [way]


def _rate(way: Way, words: Sequence[str], seconds: float) -> float:
    """Trains for a while, and returns the median images/s of the whole job.

    Raises:
      BenchmarkError: training ended before it was measured.
    """
    with tempfile.TemporaryDirectory(prefix="advise-") as name:
        folder = pathlib.Path(name)
        flags = [*words, f"--output-dir={folder / 'output'}"]
        command = way.command(flags, folder / "cluster.yaml", f"--state-dir={folder / 'runs'}")
        log = folder / "log"
        process = start_process(command, ROOT, environment(), log)
        try:
            outputs = functools.partial(_outputs, log, way.trainers)
            lines = runs.steady(outputs, lambda: process.poll() is None, seconds)
        finally:
            _end(process)
            _remove_remote(way.cluster, folder)
    return statistics.median(line.images_per_sec for line in lines[1:])


def _outputs(log: pathlib.Path, trainers: int) -> list[str]:
    """Returns what each trainer has printed, the chief first, from the output of a command."""
    text, tasks = log.read_text(errors="replace"), [f"worker/{i}" for i in range(trainers - 1)]
    found = _TASK.findall(text)
    if not found:  # of one process, or of a launcher that has not started a task
        return [text, *[""] * len(tasks)]
    return [
        "\n".join(line for task, line in found if task == name) for name in ["master/0", *tasks]
    ]


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends a launcher, or a process that trains, without a checkpoint: as Ctrl-C twice does."""
    for patience in (1.0, _END_SECS):
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    process.kill()
    process.wait()


def _remove_remote(cluster: Optional[Cluster], folder: pathlib.Path) -> None:
    """Removes the output folder from the chief's host."""
    if cluster is not None:
        host = next(host for host in cluster["hosts"] if "master" in host["roles"])
        target = f"{host['user']}@{host['name']}" if "user" in host else host["name"]
        words = ["ssh", "-o", "BatchMode=yes", target, "rm", "-rf", str(folder)]
        subprocess.run(words, check=False, stdin=subprocess.DEVNULL, capture_output=True)


def best_of(rates: Mapping[Way, Sequence[float]], images: int) -> Way:
    """Chooses, among ways about as fast as the fastest, the least stale, then the simplest."""
    speeds = {way: statistics.median(found) for way, found in rates.items()}
    as_fast = [way for way, speed in speeds.items() if speed >= _AS_GOOD * max(speeds.values())]

    def rank(way: Way) -> tuple[int, int, int]:
        return way.staleness, _update_images(way, images), way.trainers + way.ps

    return min(as_fast, key=rank)


def _update_images(way: Way, images: int) -> int:
    """Returns the number of images whose gradients make up one update."""
    return images * (way.trainers if way.sync else 1)


def table_of(rates: Mapping[Way, Sequence[float]], images: int) -> str:
    """Returns a table with a row for each way, the fastest first."""
    columns = [("way", "{way.title}"), ("updates", "{way.updates}")]
    columns += [("images/s", "{rates[0]:,.0f}"), ("from, to", "{rates[1]:,.0f}, {rates[2]:,.0f}")]
    columns += [("stale", "{way.staleness}"), ("images an update", "{images:,}")]
    rows = [
        {"way": way, "rates": runs.spread(rates[way]), "images": _update_images(way, images)}
        for way in sorted(rates, key=lambda way: -statistics.median(rates[way]))
    ]
    return as_markdown(columns, rows)
