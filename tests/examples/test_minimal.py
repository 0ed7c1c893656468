"""The example: two towers learn the drawn shapes."""

import re
import sys
from pathlib import Path

import pytest
import tensorflow.compat.v1 as tf

from data_prep import cli
from examples import minimal
from tests import shell


@pytest.mark.system
def test_two_towers_learn_from_our_records(root: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    words = ["--source", "synthetic", "--synthetic-size", "2000", "--out", str(data)]
    assert cli.main(words) == 0
    command = (
        f"{sys.executable} examples/minimal.py --data-dir={data} --output-dir={tmp_path}/output "
        "--towers=2 --train-steps=60 --train-batch-size=64"
    )
    done = shell.run(command, root)
    losses = [float(loss) for loss in re.findall(r"loss = ([0-9.]+), step", done.stderr)]
    assert losses[0] > 2.0
    figures = re.search(r"eval accuracy ([0-9.]+) at step ([0-9]+)", done.stdout)
    assert figures is not None, done.stdout
    assert float(figures[1]) > 0.2  # By chance 0.1.
    assert figures[2] == "60"


def test_a_variable_gets_the_mean_of_the_towers_gradients() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        towers = [
            [(tf.constant([gradient]), "a"), (tf.constant([2 * gradient]), "b")]
            for gradient in (1.0, 3.0)
        ]
        gradients, variables = zip(*minimal.average_gradients(towers))
        assert [value.tolist() for value in session.run(gradients)] == [[2.0], [4.0]]
        assert variables == ("a", "b")
