"""Evaluations in one graph and session give what Estimator's own give, on the real object."""

import pathlib
import shutil
import types
from collections.abc import Callable, Iterator
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.errors import Stopped
from cifar10.run import kept_evaluation
from cifar10.run.kept_evaluation import KeptEvaluation

TAGS = ["accuracy", "loss", "losses"]
COUNT = 7  # images of a split, in batches of 3
FRESH: dict[tuple[int, int], dict[str, Any]] = {}


def model(built: list[str]) -> Callable[..., Any]:
    """A model_fn of a linear model, which notes in `built` whenever its graph is built."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        built.append(mode)
        logits = features @ tf.get_variable("weights", [2, 3])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(losses)
        step = tf.train.get_global_step()
        return tf.estimator.EstimatorSpec(
            mode,
            loss=loss,
            train_op=tf.train.GradientDescentOptimizer(1.0).minimize(loss, step),
            eval_metric_ops={
                "accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, axis=1)),
                "losses": tf.metrics.mean(losses),
            },
        )

    return model_fn


def batches(seed: int) -> Callable[[], tf.data.Dataset]:
    random = np.random.default_rng(seed)
    features = random.normal(size=(COUNT, 2)).astype(np.float32)
    labels = random.integers(0, 3, COUNT)
    return lambda: tf.data.Dataset.from_tensor_slices((features, labels)).batch(3)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with checkpoints of steps 1 to 3."""
    folder = tmp_path_factory.mktemp("checkpoints")
    config = tf.estimator.RunConfig(str(folder), save_checkpoints_steps=1, tf_random_seed=1)
    trainer = tf.estimator.Estimator(model([]), config=config)
    trainer.train(lambda: batches(0)().repeat(), steps=3)
    return folder


class Evaluated:
    """The checkpoints in a folder, and their kept evaluation."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        config = types.SimpleNamespace(log_folder=lambda name: str(folder / "log" / name))
        plan = types.SimpleNamespace(session_config=tf.ConfigProto())
        self.kept = KeptEvaluation(cast(Any, types.SimpleNamespace(config=config, plan=plan)))

    def checkpoint(self, step: int) -> str:
        return str(self.folder / f"model.ckpt-{step}")

    def stock(self, step: int, seed: int = 1) -> dict[str, Any]:
        """The figures of Estimator's own evaluation."""
        estimator = tf.estimator.Estimator(model([]), str(self.folder))
        checkpoint = self.checkpoint(step)
        return dict(
            estimator.evaluate(batches(seed), checkpoint_path=checkpoint, name="validation")
        )

    def fresh(self, step: int, seed: int = 1) -> dict[str, Any]:
        """The same of one of the three checkpoints, which is made once."""
        if (step, seed) not in FRESH:
            FRESH[step, seed] = self.stock(step, seed)
        return FRESH[step, seed]

    def evaluate(self, step: int, seed: int = 1, name: str = "validation") -> dict[str, Any]:
        return self.kept.evaluate(batches(seed), [], self.checkpoint(step), name)


@pytest.fixture
def evaluated(
    tmp_path: pathlib.Path, checkpoints: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Evaluated]:
    built: list[str] = []
    model_fn = model(built)
    monkeypatch.setattr(kept_evaluation, "model_fn", lambda *given: model_fn(*given[:3]))
    yield Evaluated(shutil.copytree(checkpoints, tmp_path / "model"))
    assert built == ["eval"]  # once, whatever is evaluated
    tf.summary.FileWriterCache.clear()


def test_the_figures_of_each_split_are_those_of_the_estimator(evaluated):
    fresh = [evaluated.fresh(step) for step in (1, 2, 3)]
    assert [evaluated.evaluate(step) for step in (1, 2, 3)] == fresh
    assert [one["global_step"] for one in fresh] == [1, 2, 3]
    assert len({one["losses"] for one in fresh}) == 3
    other = evaluated.fresh(2, seed=2)
    assert evaluated.evaluate(2, seed=2, name="eval") == other != fresh[1]
    assert evaluated.evaluate(2) == fresh[1]


def events_of(folder: pathlib.Path) -> list[tuple[int, str, Any]]:
    paths = sorted(folder.glob("events.out.tfevents.*"))
    return [
        (event.step, value.tag, value.simple_value or value.tensor)
        for path in paths
        for event in tf.train.summary_iterator(str(path))
        for value in event.summary.value
    ]


def test_the_numbers_are_logged_as_by_the_estimator_in_the_folder_that_was_chosen(evaluated):
    evaluated.stock(1)
    evaluated.stock(2)
    tf.summary.FileWriterCache.clear()
    expected = [
        event for event in events_of(evaluated.folder / "eval_validation") if event[1] in TAGS
    ]
    evaluated.evaluate(1)
    evaluated.evaluate(2)
    tf.summary.FileWriterCache.clear()
    assert events_of(evaluated.folder / "log" / "validation") == expected
    assert [tag for step, tag, _ in expected if step == 2] == TAGS


def damage(path: pathlib.Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


def test_a_damaged_checkpoint_between_two_good_ones_is_an_error_of_its_own(evaluated):
    first, third = evaluated.fresh(1), evaluated.fresh(3)
    damage(evaluated.folder / "model.ckpt-2.data-00000-of-00001")
    with pytest.raises(tf.errors.DataLossError) as expected:
        evaluated.stock(2)
    assert evaluated.evaluate(1) == first
    with pytest.raises(tf.errors.DataLossError) as caught:
        evaluated.evaluate(2)
    reason = expected.value.message.split("\n")[0]
    assert caught.value.message.split("\n")[0] == reason
    assert evaluated.evaluate(3) == third


def test_an_evaluation_after_one_that_a_signal_broke_off_is_as_a_fresh_one(evaluated):
    hook = mock.Mock(before_run=mock.Mock(side_effect=[None, Stopped(15)]))
    with pytest.raises(Stopped):
        evaluated.kept.evaluate(batches(1), [hook], evaluated.checkpoint(2), "validation")
    assert evaluated.evaluate(1) == evaluated.fresh(1)
