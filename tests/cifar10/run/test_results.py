"""The end of training: which mistakes are shown, and when a run counts as finished."""

import pathlib

import numpy as np
import pytest

from cifar10.host.files import write_json
from cifar10.run import results
from cifar10.run.hooks.validation import Ending
from cifar10.run.modes.evaluate import Evaluation


def evaluation(labels, probabilities):
    count = len(labels)
    images = np.zeros((count, 32, 32, 3), np.uint8) + np.arange(count)[:, None, None, None]
    return Evaluation(
        checkpoint="model.ckpt-5",
        step=5,
        accuracy=0.5,
        loss=1.0,
        confusion_matrix=np.zeros((10, 10), np.int64),
        images=images.astype(np.uint8),
        labels=np.array(labels),
        probabilities=np.array(probabilities, np.float32),
    )


def probability(**classes):
    row = np.zeros(10)
    for name, value in classes.items():
        row[int(name[1:])] = value
    return row


def test_the_mistakes_that_the_model_is_surest_of_come_first():
    rows = [
        probability(c3=0.9, c5=0.1),  # right
        probability(c1=0.6, c2=0.4),  # wrong: 2
        probability(c7=0.8, c0=0.2),  # wrong: 0
        probability(c7=1.0),  # right
        probability(c4=0.6, c9=0.4),  # wrong: 9
    ]
    mistakes = results._worst_mistakes(evaluation([3, 2, 0, 7, 9], rows))
    assert [mistake.index for mistake in mistakes] == [2, 1, 4]
    worst = mistakes[0]
    assert (worst.label, worst.predicted) == (0, 7)
    assert (round(worst.probability, 6), round(worst.label_probability, 6)) == (0.8, 0.2)
    assert worst.image.shape == (32, 32, 3)
    assert (worst.image == 2).all()


def test_no_more_than_36_mistakes_are_shown():
    assert len(results._worst_mistakes(evaluation([1] * 100, np.eye(10)[[2] * 100]))) == 36


ENDING = Ending("stopped by --early-stopping-epochs", "training ends")


@pytest.fixture
def output(tmp_path: pathlib.Path) -> str:
    """The folder of a run that has reached --stop-at-accuracy."""
    figures = {"global_step": 12_345, "eval_accuracy": 0.91234}
    result = {"figures": figures, "status": "stopped by --stop-at-accuracy"}
    write_json(str(tmp_path / "result.json"), result)
    return str(tmp_path)


def test_a_run_is_finished_when_its_result_is_of_the_last_step(output):
    assert results.describe_finished(output, 12_345, None) == (
        f"already trained to step 12,345: eval accuracy 0.9123, report: {output}/report.html, "
        f"result: {output}/result.json\nto train on, raise --train-steps or --train-epochs; to "
        "start anew, name another --output-dir"
    )
    # Killed after the last step of a longer run, before its figures.
    assert results.describe_finished(output, 20_000, None) is None
    assert results.describe_finished(f"{output}/other", 12_345, None) is None


@pytest.mark.parametrize("content", ["{", "[]", '{"figures": {"global_step": 12345}}'])
def test_a_damaged_result_is_written_again(output, content):
    (pathlib.Path(output) / "result.json").write_text(content)
    assert results.describe_finished(output, 12_345, None) is None


def test_a_run_that_a_goal_keeps_from_going_on_names_the_goal_of_this_start(output):
    said = results.describe_finished(output, 12_345, ENDING)
    assert said is not None
    assert said.splitlines()[1] == (
        "to train on, raise --early-stopping-epochs or leave it out; to start anew, name another "
        "--output-dir"
    )
