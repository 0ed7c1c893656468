"""Checks that networks still learn as before: compares first training steps with committed curves.

    python -m benchmarks converge --data-dir data

trains each recipe, the default settings and two small networks, with three seeds each, and compares
loss and accuracy with the curves in benchmarks/results/converge/, by the spread between the seeds
(benchmarks/convergence/agreement.py). Each run is cifar10_main.py itself, stopped after a number of
steps, not of minutes, so no figure depends on the machine's speed. It takes about half an hour on
two cores.

Curves of synthetic and of real images are kept apart, and so are those of fp32 and bf16. --write
renews the committed curves. Flags after `--` are added to a case's own flags or replace them:
`-- --weight-decay=0` shows what the comparison would notice.

Exit code 1: a curve differs, or training failed.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from benchmarks.arguments import TRAINING_ARGS, at_least_one, new_parser, split
from benchmarks.convergence import agreement, cases, curve, picture
from benchmarks.convergence.cases import Case
from benchmarks.convergence.curve import Curve, Images
from benchmarks.convergence.cut_run import TrainingFailedError
from benchmarks.convergence.measure import describe_images, measure
from benchmarks.errors import BenchmarkError
from cifar10.input.records import open_records
from launch.cluster.host_list import ROOT

COMMITTED = ROOT / "benchmarks" / "results" / "converge"


def main(argv: Sequence[str]) -> int:
    """Trains each case and prints whether its curve agrees with the committed one.

    Returns:
      The exit code: 1 if a curve differs or training failed, else 0.
    """
    arguments = _parse(argv)
    images = _open_images(arguments.data_dir)
    words = tuple(arguments.training)
    chosen = [cases.find(name, arguments.precision, words) for name in arguments.cases]
    committed = {case: _committed(case, arguments, images) for case in chosen}
    new, agree = {}, True
    for case in chosen:
        try:
            steps = case.steps(arguments.rows)
            new[case] = measure(case, images, arguments.data_dir, arguments.seeds, steps)
        except TrainingFailedError as error:
            print(f"{case.name}, {case.precision}: training failed: {error}", flush=True)
            agree = False
            continue
        if arguments.out:
            new[case].save(curve.place_of(arguments.out, images.kind, case))
        old = committed[case]
        if old is None or arguments.write:  # `_committed` returns None with --write only.
            path = curve.place_of(arguments.committed, images.kind, case)
            new[case].save(path)
            print(f"{new[case].title}: written to {path}", flush=True)
            continue
        agrees, text = agreement.verdict(new[case], old)
        print(text, flush=True)
        agree &= agrees
    if arguments.picture:
        pairs = [(committed[case], new.get(case)) for case in chosen]
        drawn = [pair for pair in pairs if pair != (None, None)]
        if drawn:
            picture.save(drawn, arguments.picture)
            print(f"picture: {arguments.picture}")
    return 0 if agree else 1


def _open_images(data_dir: str) -> Images:
    records = open_records(data_dir)
    if not records.has_validation:
        raise BenchmarkError(
            f"--data-dir must hold a validation split, and {data_dir} has none; data_prep makes "
            "one unless --validation-size is 0"
        )
    return describe_images(records)


def _committed(case: Case, arguments: argparse.Namespace, images: Images) -> Optional[Curve]:
    """Returns the committed curve of a case; None only if there is none and --write will make it.

    Raises:
      BenchmarkError: there is no such curve, or the new one will not be comparable with it.
    """
    path = curve.place_of(arguments.committed, images.kind, case)
    if not path.exists():
        if arguments.write:
            return None
        raise BenchmarkError(
            f"no committed curve of {case.name} ({path}); --write makes it, --cases leaves it out"
        )
    found = Curve.load(path)
    if not arguments.write:
        for note in agreement.check_comparable(case, arguments.rows, found, images):
            print(f"note: {note}")
    return found


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = new_parser("converge", __doc__)
    parser.epilog = TRAINING_ARGS
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--cases", nargs="+", choices=cases.NAMES, default=cases.NAMES)
    parser.add_argument("--seeds", nargs="+", type=at_least_one, default=(1, 2, 3), metavar="SEED")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument(
        "--rows",
        type=at_least_one,
        default=cases.ROWS,
        help=f"of a curve (default {cases.ROWS}); fewer train its beginning only",
    )
    parser.add_argument("--write", action="store_true", help="renew the committed curves")
    parser.add_argument(
        "--committed", type=Path, default=COMMITTED, metavar="DIR", help=argparse.SUPPRESS
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the new curves there")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw them, PNG or SVG")
    ours, training = split(argv)
    arguments = parser.parse_args(ours)
    arguments.training = training
    if arguments.write and arguments.training:
        raise BenchmarkError(
            f"--write keeps the curves of the cases as they are; leave out "
            f"{' '.join(arguments.training)}"
        )
    if arguments.write and arguments.rows != cases.ROWS:
        raise BenchmarkError(f"--write keeps whole curves, {cases.ROWS} rows; leave out --rows")
    return arguments
