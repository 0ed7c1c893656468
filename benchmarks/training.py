"""Training speed: the whole program against its bare step and against peers, round by round.

    python -m benchmarks.training --data-dir data --num-layers 44 --rounds 3 \
        --peer "python keras_fit.py --layers 44" --peer "other/bin/python torch_step.py --layers 44"

Each round runs, one after the other, the bare step, the whole of `cifar10_main.py` (for a number of
steps, with validation after the last) and each peer: a command that prints a JSON line with
images_per_sec. So a machine that others use too slows all of them alike; read the ratios.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main() -> None:
    """Runs the rounds and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--num-layers", type=int, default=44)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="append", default=[], metavar="COMMAND")
    arguments = parser.parse_args()
    flags = [
        f"--num-layers={arguments.num_layers}",
        f"--train-batch-size={arguments.batch_size}",
        f"--precision={arguments.precision}",
    ]
    bare = [sys.executable, "-m", "benchmarks.bare_step", *flags]
    rates: dict[str, list[float]] = {}
    for index in range(arguments.rounds):
        load = os.getloadavg()[0]
        found = {
            "bare step": last_rate(bare),
            "train_and_evaluate": program_rate(
                [*flags, f"--data-dir={arguments.data_dir}"], arguments.steps
            ),
        }
        for peer in arguments.peer:
            found[peer] = last_rate(shlex.split(peer))
        for name, rate in found.items():
            rates.setdefault(name, []).append(rate)
        print(f"round {index + 1}, load before it {load:.1f}: {found}", flush=True)
    Console().print(make_table(rates))


def last_rate(command: Sequence[str]) -> float:
    """Runs a command whose last line is JSON with images_per_sec."""
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["images_per_sec"])


def program_rate(flags: Sequence[str], steps: int) -> float:
    """images/s of the whole program: the median of its progress lines.

    The first line, which warms up as the bare step does, and the last, which closes, are left out.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "cifar10_main.py", *flags, f"--train-steps={steps}", "--log-steps=5"]
            + [f"--output-dir={folder}/output"],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        result = json.loads((pathlib.Path(folder) / "output/result.json").read_text())
    rows = result["history"]["train"][1:-1]
    return round(statistics.median(row["images_per_sec"] for row in rows), 1)


def make_table(rates: dict[str, list[float]]) -> Table:
    """Medians, extremes and the ratio to the whole program's median, round by round."""
    table = Table("what", "median images/s", "lowest", "highest", "ours / this", title="training")
    ours = rates["train_and_evaluate"]
    for name, values in rates.items():
        ratio = statistics.median(own / other for own, other in zip(ours, values))
        numbers = (statistics.median(values), min(values), max(values))
        table.add_row(name, *(f"{number:.1f}" for number in numbers), f"{ratio:.3f}")
    return table


if __name__ == "__main__":
    main()
