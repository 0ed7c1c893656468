"""Finds the fastest way to train on your own machine or hosts, by trying the ways.

    python -m benchmarks advise -- --num-layers=44 --train-batch-size=128
    python -m benchmarks advise --hosts ip0,ip1 -- --train-batch-size=128

The ways are one process with several towers, several workers on one host, and workers and parameter
servers on separate hosts; synchronous or asynchronous; with different numbers of parameter servers.
In each round, the launcher trains each way for some seconds and stops it. `--train-batch-size` is
that of a trainer, as always. Hosts need what training needs (docs/launch.md), and benchmarks/.
"""

import argparse
import pathlib
from collections.abc import Sequence
from typing import Optional

from rich.console import Console

from benchmarks import arguments
from benchmarks.errors import BenchmarkError
from benchmarks.scaling import jobs
from benchmarks.scaling.advise_report import Result, best_of, ranked, table_of
from benchmarks.scaling.advised_ways import Way, ways_on_hosts, ways_on_this_machine
from benchmarks.scaling.measured_run import Figures, Run
from cifar10.config import flags
from cifar10.config.train_config import TrainConfig
from launch.backends.local.backend import TRANSPORT as LOCAL
from launch.backends.registry import KINDS
from launch.backends.ssh.transport import TRANSPORT as SSH
from launch.cluster.cluster_file import read_cluster
from launch.cluster.host_list import from_hosts
from launch.cluster.model import Cluster


def main(argv: Sequence[str]) -> int:
    """Measures every way, and prints the table and the command of the best way."""
    options = _parse(argv)
    cluster = _cluster(options)
    ways = ways_on_hosts(cluster) if cluster else ways_on_this_machine()
    is_remote = cluster is not None and cluster.backend == "ssh"
    transport = SSH if is_remote else LOCAL
    console = Console(highlight=False)
    measured: dict[Way, list[Figures]] = {}
    failed: set[Way] = set()
    log_steps = 1
    for index in range(options.rounds):
        for way in ways:
            if way in failed:
                continue
            run = Run(
                way.cluster,
                _config(options.config, way),
                options.seconds,
                log_steps,
                transport=transport,
            )
            try:
                figures = jobs.measure(run)
            except BenchmarkError as error:
                failed.add(way)
                console.print(f"{way.title}, {way.updates}: left out: {error}", markup=False)
                continue
            log_steps = jobs.log_steps_for(figures.step_secs)
            measured.setdefault(way, []).append(figures)
            rate = f"{figures.images_per_sec:,.0f} images/s"
            console.print(f"round {index + 1}: {way.title}, {way.updates}: {rate}")
    if not measured:
        raise BenchmarkError("no way of training could be measured; see above")
    results = [
        Result(way, options.config.train_batch_size, tuple(found))
        for way, found in measured.items()
        if way not in failed
    ]
    console.print(table_of(ranked(results)))
    best = best_of(results)
    console.print(f"best: {best.why(results)}", markup=False, soft_wrap=True)
    words = jobs.words_of(_config(options.config, best.way), set())
    console.print(best.way.command(words, options.out), markup=False, soft_wrap=True)
    return 0


def _config(config: TrainConfig, way: Way) -> TrainConfig:
    is_asynchronous = way.trainers > 1 and not way.sync
    words = ["--sync=false"] if is_asynchronous else []
    return flags.parse([*jobs.words_of(config, set()), *words])


def _cluster(options: argparse.Namespace) -> Optional[Cluster]:
    if options.hosts:
        return from_hosts(options.hosts, options.python, options.workdir)
    if options.python or options.workdir:
        raise BenchmarkError("--python and --workdir go with --hosts")
    if not options.cluster:
        return None
    cluster = read_cluster(options.cluster, KINDS)
    if cluster.backend not in ("local", "ssh"):
        raise BenchmarkError(
            f"{options.cluster} must have `backend: ssh` or `local`, got {cluster.backend}; advise "
            "runs its own program on the hosts"
        )
    return cluster


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = arguments.new_parser("advise", __doc__)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--hosts", metavar="IP0,IP1", help="default: this machine alone")
    where.add_argument("--cluster", metavar="FILE", help="a cluster file; its roles do not matter")
    parser.add_argument("--python", metavar="PATH", help="the training's Python on --hosts")
    parser.add_argument("--workdir", metavar="DIR", help="the folder with the code on --hosts")
    parser.add_argument("--rounds", type=arguments.at_least_one, default=2, help="(default 2)")
    parser.add_argument(
        "--seconds", type=arguments.positive, default=10.0, help="of each run (default 10)"
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("advised.yaml"),
        metavar="FILE",
        help="gets the best way's cluster, where it has hosts (default advised.yaml)",
    )
    return arguments.parse(parser, argv)
