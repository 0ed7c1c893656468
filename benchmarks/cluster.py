"""What a cluster costs: seconds of a whole job, and of a step against a single process.

    python -m benchmarks cluster mlp --data-dir data --steps 10000 --rounds 3
    python -m benchmarks cluster tax --data-dir data --num-layers 44 20 --batch-sizes 16 --rounds 3

`mlp` times one ps and two trainers, asynchronous and synchronous, from the start of the processes
to the last exit: a 100-unit MLP at batch 100 with Adam, as PS/worker demos have it, with the 3,072
inputs of CIFAR-10. Beside them runs the same with nothing but tf.estimator, asynchronous
(benchmarks/stock_estimator.py); its ps never ends by itself and is killed after the trainers.
`tax` compares the wall time of a step of one ps and one master with a single process's. Variants
take turns, so that a machine that others use too slows all of them alike; read the ratios. Each run
prints a JSON line, the end is a table. All tasks run on this machine.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = pathlib.Path(__file__).resolve().parents[1]
MLP = (
    "--model=mlp",
    "--train-batch-size=100",
    "--optimizer=adam",
    "--learning-rate=0.001",
    "--schedule=constant",
    "--weight-decay=0",
    "--use-distortion-for-training=false",
)
STOCK = "stock tf.estimator, asynchronous"
_POLL_SECS = 0.02


class Tasks:
    """The tasks of a cluster on loopback, or a single process, with TF_CONFIG as platforms set it.

    Args:
      flags: of every task.
      folder: gets a log file a task.
      counts: how many tasks each job has; without any, one process trains alone.
      program: what each task runs, as Python's arguments.
    """

    def __init__(
        self,
        flags: Sequence[str],
        folder: pathlib.Path,
        counts: Mapping[str, int],
        program: Sequence[str] = (str(ROOT / "cifar10_main.py"),),
    ) -> None:
        self._words, self._folder = [*program, *flags], folder
        self._jobs = {
            job: [_free_address() for _ in range(count)] for job, count in counts.items() if count
        }
        self.labels = [f"{job}/{i}" for job, tasks in self._jobs.items() for i in range(len(tasks))]
        self.labels = self.labels or ["alone/0"]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *labels: str) -> None:
        """Starts tasks, all of them if none is named."""
        kept = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
        for label in labels or self.labels:
            job, _, index = label.partition("/")
            task = {"type": job, "index": int(index)}
            tf_config = json.dumps({"cluster": self._jobs, "task": task}) if self._jobs else ""
            with open(self._log(label), "ab") as log:
                self._processes[label] = subprocess.Popen(
                    [sys.executable, *self._words],
                    cwd=ROOT,
                    env={**kept, "TF_CONFIG": tf_config, "CI": "true"},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )

    def kill(self, label: str) -> None:
        """Ends a task with SIGKILL."""
        self._processes[label].kill()
        self._processes[label].wait()

    def send_signal(self, label: str, signum: int) -> None:
        """Sends a task a signal."""
        self._processes[label].send_signal(signum)

    def output(self, label: str) -> str:
        """What a task has printed."""
        return self._log(label).read_text()

    def check(self, but: str = "") -> bool:
        """Whether all tasks have ended, those whose labels begin with `but` left out.

        Raises:
          RuntimeError: one of them failed.
        """
        codes = {
            label: process.poll()
            for label, process in self._processes.items()
            if not but or not label.startswith(but)
        }
        for label, code in codes.items():
            if code:
                raise RuntimeError(f"{label} ended with {code}: {self.output(label)[-2000:]}")
        return None not in codes.values()

    def wait(self, timeout_secs: float = 3600.0, but: str = "") -> None:
        """Waits until all tasks have ended with exit code 0; `but` as for `check`.

        Raises:
          RuntimeError: one of them failed, or still runs after the timeout.
        """
        deadline = time.monotonic() + timeout_secs
        while not self.check(but):
            if time.monotonic() > deadline:
                running = [one for one in self._processes if self._processes[one].poll() is None]
                raise RuntimeError(f"still running after {timeout_secs:g} s: {', '.join(running)}")
            time.sleep(_POLL_SECS)

    def end(self) -> None:
        """Ends what still runs."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def _log(self, label: str) -> pathlib.Path:
        return self._folder / f"{label.replace('/', '-')}.log"


@contextlib.contextmanager
def tasks_of(flags: Sequence[str], **counts: int) -> Iterator[tuple[Tasks, pathlib.Path]]:
    """Tasks that have not started yet, and their output folder; both are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "output"
        tasks = Tasks([*flags, f"--output-dir={output}"], pathlib.Path(folder), counts)
        try:
            yield tasks, output
        finally:
            tasks.end()


def main(argv: Sequence[str]) -> None:
    """Runs the rounds and prints a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    mlp, tax = kinds.add_parser("mlp"), kinds.add_parser("tax")
    for kind, steps in ((mlp, 10_000), (tax, 200)):
        kind.add_argument("--data-dir", type=pathlib.Path, default="data")
        kind.add_argument("--steps", type=int, default=steps)
        kind.add_argument("--rounds", type=int, default=3)
    tax.add_argument("--num-layers", type=int, nargs="+", default=[44])
    tax.add_argument("--batch-sizes", type=int, nargs="+", default=[16])
    arguments = parser.parse_args(argv)
    flags = [f"--data-dir={arguments.data_dir.resolve()}", f"--train-steps={arguments.steps}"]
    if arguments.kind == "mlp":
        Console().print(measure_mlp(flags, arguments.rounds))
    else:
        networks = [(one, size) for one in arguments.num_layers for size in arguments.batch_sizes]
        Console().print(measure_tax(flags, networks, arguments.rounds))


def measure_mlp(flags: Sequence[str], rounds: int) -> Table:
    """Seconds of the whole job, asynchronous, synchronous and without this project, in turns."""
    steps = steps_of(flags)
    mlp = [*MLP, *flags, f"--checkpoint-steps={steps}"]
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "asynchronous": lambda: _whole_job([*mlp, "--sync=false"]),
        "synchronous": lambda: _whole_job(mlp),
        STOCK: lambda: _stock_job(steps),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for index in range(rounds):
        for mode, run in ways.items():
            load = os.getloadavg()[0]
            figures = run()
            found[mode].append(figures["seconds"])
            _print_line(round=index + 1, mode=mode, **figures, load=load)
    table = Table("mode", "median s", "lowest", "highest", "n", title="1 ps, 2 trainers: whole job")
    for mode, seconds in found.items():
        numbers = (statistics.median(seconds), min(seconds), max(seconds))
        table.add_row(mode, *(f"{number:.1f}" for number in numbers), str(len(seconds)))
    return table


def _whole_job(flags: Sequence[str]) -> dict[str, Any]:
    """Runs the program as a master, a worker and a ps."""
    started = time.monotonic()
    with tasks_of(flags, master=1, worker=1, ps=1) as (tasks, output):
        tasks.start()
        tasks.wait()
        seconds = time.monotonic() - started
        figures = json.loads((output / "result.json").read_text())["figures"]
    return {
        "seconds": round(seconds, 2),
        "global_step": figures["global_step"],
        "training_seconds": round(figures["training_seconds"], 2),
        "eval_accuracy": figures["eval_accuracy"],
    }


def _stock_job(steps: int) -> dict[str, Any]:
    """Runs the same with tf.estimator alone."""
    with tempfile.TemporaryDirectory() as folder:
        words = [str(steps), f"{folder}/output"]
        program = ("-m", "benchmarks.stock_estimator")
        counts = {"master": 1, "worker": 1, "ps": 1}
        tasks = Tasks(words, pathlib.Path(folder), counts, program)
        started = time.monotonic()
        try:
            tasks.start()
            tasks.wait(but="ps")
            return {"seconds": round(time.monotonic() - started, 2)}
        finally:
            tasks.end()


def steps_of(flags: Sequence[str]) -> int:
    """The value of --train-steps."""
    return next(int(one.partition("=")[2]) for one in flags if one.startswith("--train-steps="))


def measure_tax(flags: Sequence[str], networks: Sequence[tuple[int, int]], rounds: int) -> Table:
    """Milliseconds of a step with a ps and without, in turns, network by network.

    Args:
      flags: of the program.
      networks: layers and batch size of each.
      rounds: pairs of runs a network.
    """
    title = "1 ps and 1 master against a single process: wall time of a step"
    table = Table("layers", "batch", "alone ms", "with a ps ms", "ratio", "ratios", title=title)
    for layers, size in networks:
        more = [*flags, f"--num-layers={layers}", f"--train-batch-size={size}"]
        alone, with_ps = [], []
        for index in range(rounds):
            load = os.getloadavg()[0]
            alone.append(step_ms(more))
            with_ps.append(step_ms(more, master=1, ps=1))
            _print_line(
                round=index + 1,
                num_layers=layers,
                batch_size=size,
                alone_ms=round(alone[-1], 2),
                with_ps_ms=round(with_ps[-1], 2),
                ratio=round(with_ps[-1] / alone[-1], 3),
                load=load,
            )
        ratios = [one / other for one, other in zip(with_ps, alone)]
        table.add_row(
            str(layers),
            str(size),
            f"{statistics.median(alone):.1f}",
            f"{statistics.median(with_ps):.1f}",
            f"{statistics.median(ratios):.3f}",
            ", ".join(f"{ratio:.3f}" for ratio in ratios),
        )
    return table


def step_ms(flags: Sequence[str], **counts: int) -> float:
    """Milliseconds of a step: the median of the history's rows.

    The first row, which warms up, and the last, which closes, are left out; so is validation, which
    stops the clock.
    """
    steps = steps_of(flags)
    more = [f"--log-steps={max(1, steps // 10)}", f"--checkpoint-steps={steps}"]
    with tasks_of([*flags, *more], **counts) as (tasks, output):
        tasks.start()
        tasks.wait()
        rows = json.loads((output / "result.json").read_text())["history"]["train"]
    pairs = list(zip(rows, rows[1:]))[:-1]
    return 1000 * statistics.median(
        (row["seconds"] - before["seconds"]) / (row["step"] - before["step"])
        for before, row in pairs
    )


def _print_line(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


def _free_address() -> str:
    """On loopback, outside the range of outgoing connections: one of them could take the port."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"
