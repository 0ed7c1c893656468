"""A separate evaluator: what it validates, when it ends, and what it leaves behind.

Training is played by the test, between two looks of the evaluator: checkpoints are real ones.
"""

import json
import pathlib
import shutil
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, Stopped, TrainingError, UserError
from cifar10.guard import folder_lock
from cifar10.guard.watchdog import EVALUATION, StallCheck
from cifar10.host.process import StopRequest
from cifar10.input.records import open_records
from cifar10.output import model_settings, run_file
from cifar10.output.metrics import Metrics, rounded
from cifar10.run import evaluator
from cifar10.run.job import evaluation_input, make_job
from cifar10.schema import CLASS_NAMES, VALIDATION
from cifar10.step.model_fn import model_fn
from tests.cifar10 import steps

pytestmark = pytest.mark.system

REAL_SLEEP = time.sleep
SETTINGS: dict[str, Any] = {
    "model": "mlp",
    "train_batch_size": 10,
    "learning_rate": 0.01,
    "num_towers": 1,
    "num_gpus": 0,
    "keep_checkpoints": 3,
    "cluster_timeout": 60.0,
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> pathlib.Path:
    """A folder with a checkpoint after each of steps 1 to 3."""
    folder = tmp_path_factory.mktemp("checkpoints")
    with steps.training(TrainConfig(**SETTINGS), steps.make_plan(1)) as run:
        for step, batch in enumerate(steps.make_batches(3, 10), 1):
            run.step(batch)
            run.spec.scaffold.saver.save(run.session, str(folder / "model.ckpt"), step)
    return folder


class Training:
    """What an evaluator sees of training: the output folder."""

    def __init__(self, output: pathlib.Path, data: pathlib.Path, checkpoints: pathlib.Path) -> None:
        self.output, self._checkpoints = output, checkpoints
        self.stop = StopRequest()
        self._config = {**SETTINGS, "data_dir": str(data), "output_dir": str(output)}
        self.clock: list[Callable[[], None]] = []

    def begin(self, validates: bool = False) -> None:
        config = TrainConfig(**self._config)
        run_file.write_training(str(self.output), validates)
        model_settings.write(config, CLASS_NAMES)

    def save(self, step: int) -> None:
        for path in self._checkpoints.glob(f"model.ckpt-{step}.*"):
            shutil.copy(path, self.output)
        name = f"model.ckpt-{step}"
        (self.output / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')

    def end(self, step: int, validates: bool = False) -> None:
        run_file.write_training(str(self.output), validates, step, "stopped by --max-minutes")

    def evaluate(self, **settings: Any) -> None:
        config = TrainConfig(**{**self._config, **settings})
        evaluator.evaluate_until_end(config, CLUSTER, self.stop)

    def stock(self, split: str, step: int) -> tuple[float, float]:
        """Accuracy and loss of a checkpoint by an evaluation of Estimator alone."""
        config = TrainConfig(**self._config)
        job = make_job(config, open_records(config.data_path))
        alone = tf.estimator.Estimator(model_fn, str(self.output), params=job.params)
        figures = alone.evaluate(
            lambda: evaluation_input(job, split),
            checkpoint_path=str(self._checkpoints / f"model.ckpt-{step}"),
            name="stock",
        )
        return rounded(figures["accuracy"]), rounded(figures["cross_entropy"])

    def follow(self, *happens: Callable[[], None]) -> None:
        """What happens between two looks of the evaluator, one after the other."""
        self.clock += happens

    @property
    def validated(self) -> list[int]:
        return [row["step"] for row in self.rows]

    @property
    def rows(self) -> list[dict[str, Any]]:
        lines = (self.output / "metrics_evaluator.jsonl").read_text().splitlines()
        return list(map(json.loads, lines))

    @property
    def is_held(self) -> bool:
        return folder_lock.is_held(str(self.output), folder_lock.EVALUATOR)


CLUSTER = Cluster({"master": ("127.0.0.1:1",)}, "evaluator", 0, True, "TF_CONFIG")


@pytest.fixture
def training(tmp_path, tutorial_data, checkpoints, monkeypatch, pools_stay) -> Training:
    found = Training(tmp_path / "output", tutorial_data, checkpoints)
    found.output.mkdir()

    def sleep(seconds: float) -> None:
        if found.clock:
            found.clock.pop(0)()
        else:
            REAL_SLEEP(seconds)

    monkeypatch.setattr(evaluator.time, "sleep", sleep)
    return found


def test_each_checkpoint_is_validated_once_with_the_figures_of_estimators_own(training, capsys):
    training.follow(
        lambda: None,
        training.begin,
        lambda: training.save(1),
        lambda: None,
        lambda: training.save(2),
        lambda: None,
        lambda: (training.save(3), training.end(3)),
    )
    training.evaluate()
    assert training.clock == []
    assert training.validated == [1, 2]
    found = [(row["split"], row["step"], row["accuracy"], row["loss"]) for row in training.rows]
    assert found == [("validation", step, *training.stock(VALIDATION, step)) for step in (1, 2)]
    best = json.loads((training.output / "best/best.json").read_text())
    assert best["step"] == max(found, key=lambda row: row[2])[1]
    # The chief validates the last checkpoint, and makes the figures.
    assert not (training.output / "result.json").exists()
    assert not training.is_held
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"evaluator of {training.output}, 1 tower on ")
    assert sum(line.startswith("validation accuracy") for line in lines) == 2
    assert lines[-1] == "evaluator ends: training is over, and the chief evaluates and reports"


def test_a_validation_that_ends_after_training_is_left_to_the_chief(training, monkeypatch):
    images = evaluator.evaluation_input

    def ends_meanwhile(job: Any, split: str) -> Any:
        training.end(2)
        return images(job, split)

    monkeypatch.setattr(evaluator, "evaluation_input", ends_meanwhile)
    training.begin()
    training.save(2)
    training.evaluate()
    assert not (training.output / "metrics_evaluator.jsonl").exists()
    assert not (training.output / "best").exists()


def test_an_evaluator_whose_records_have_other_classes_validates_nothing(training):
    note = training.output / "run.json"

    def rename() -> None:
        note.write_text(note.read_text().replace('"cat"', '"cow"'))

    training.follow(training.begin, rename, lambda: training.save(1))
    with pytest.raises(ConfigError, match="label 3 is 'cow'; in these records it is 'cat'"):
        training.evaluate()
    assert not (training.output / "metrics_evaluator.jsonl").exists()


def test_an_evaluator_that_is_started_again_validates_what_is_new(training):
    training.begin()
    training.save(1)
    training.follow(lambda: training.stop._note(signal.SIGTERM))
    with pytest.raises(Stopped):
        training.evaluate()
    assert training.validated == [1]
    assert not training.is_held
    training.stop = StopRequest()
    training.save(2)
    training.follow(lambda: training.end(2))
    training.evaluate()
    assert training.validated == [1, 2]


def test_an_evaluator_that_is_started_before_the_master_goes_on_does_not_take_its_earlier_end(
    training,
):
    training.begin()
    training.save(1)
    training.end(1)
    training.follow(
        lambda: None,
        training.begin,
        lambda: training.save(2),
        lambda: None,
        lambda: (training.save(3), training.end(3)),
    )
    training.evaluate()
    assert training.clock == []
    assert training.validated[-1] == 2


def test_an_evaluator_that_stays_has_only_the_validations_of_the_new_run(training):
    def begin_anew() -> None:
        for path in training.output.glob("model.ckpt-*"):
            path.unlink()
        (training.output / "checkpoint").unlink()
        (training.output / "metrics_evaluator.jsonl").rename(training.output / "older")
        training.begin()

    training.begin()
    training.save(1)
    training.follow(begin_anew, lambda: training.save(2), lambda: None, lambda: training.end(2))
    training.evaluate()
    assert training.validated == [2]


def test_validations_have_the_seconds_of_training_that_the_master_has_measured(training):
    row = {"epoch": 1.0, "loss": 1.0, "accuracy": 0.5, "learning_rate": 0.1, "images_per_sec": 10.0}
    for step in (1, 2):
        Metrics(str(training.output)).add("train", step, **row, seconds=2.5 * step)
    training.follow(training.begin, lambda: training.save(1), lambda: training.save(2))
    training.follow(lambda: None, lambda: training.end(2))
    training.evaluate()
    assert [row["seconds"] for row in training.rows] == [2.5, 5.0]


def test_where_the_master_validates_the_evaluator_leaves_all_to_it(training):
    training.save(1)  # Before training says who validates, the evaluator waits.
    held = []
    training.follow(
        lambda: held.append(training.is_held),
        lambda: training.begin(validates=True),
        lambda: None,
        lambda: training.end(1, validates=True),
    )
    training.evaluate()
    assert held == [True]
    assert not training.is_held
    assert not (training.output / "metrics_evaluator.jsonl").exists()


def test_a_checkpoint_that_training_removes_before_it_is_restored_is_passed_over(
    training, monkeypatch
):
    training.begin()
    images = evaluator.evaluation_input

    def removed_and_read(job: Any, split: str) -> Any:
        for path in training.output.glob("model.ckpt-1.*"):
            path.unlink()
        return images(job, split)

    monkeypatch.setattr(evaluator, "evaluation_input", removed_and_read)
    training.follow(lambda: training.save(1), lambda: training.save(2), lambda: None)
    training.follow(lambda: training.end(2))
    training.evaluate()
    assert training.validated == [2]


def test_while_it_waits_an_evaluator_is_in_no_phase_that_a_stall_ends(training, monkeypatch):
    phases: list[Any] = []
    monkeypatch.setattr(StallCheck, "begin", lambda _, phase: phases.append(phase))
    training.begin()
    training.save(1)
    training.follow(lambda: training.end(1))
    training.evaluate()
    assert phases[-2:] == [EVALUATION, None]


def test_a_damaged_checkpoint_is_an_error(training):
    training.begin()

    def save_half() -> None:
        training.save(1)
        (training.output / "model.ckpt-1.index").write_bytes(b"nothing")

    training.follow(save_half, lambda: training.end(1))
    with pytest.raises(UserError, match=r"model\.ckpt-1 is damaged"):
        training.evaluate()
    assert len(training.clock) == 1  # It ended at this checkpoint, before training did.
    assert not training.is_held


def test_an_evaluator_gives_up_where_nobody_trains(training):
    training.begin()
    training.save(1)
    with pytest.raises(TrainingError) as given_up:
        training.evaluate(cluster_timeout=0.3)
    assert str(given_up.value) == (
        f"no process has trained in {training.output} for 0.3 s (--cluster-timeout); give the "
        "evaluator the chief's --output-dir, or start the training again, and then this task"
    )
    assert training.validated == [1]


def test_an_evaluator_waits_while_a_process_trains_however_long_a_checkpoint_takes(training):
    training.begin(validates=True)
    place = str(training.output)
    with folder_lock.hold(place, place, folder_lock.TRAINING, lambda: None):
        training.follow(lambda: REAL_SLEEP(0.5), lambda: None, lambda: training.end(1, True))
        training.evaluate(cluster_timeout=0.3)
    assert training.clock == []


def test_without_locks_an_evaluator_waits_as_long_as_something_changes(training, monkeypatch):
    monkeypatch.setattr(folder_lock, "is_held", lambda *_: False)
    training.begin(validates=True)
    for step in (1, 2, 3):
        training.follow(lambda: REAL_SLEEP(0.7), lambda step=step: training.save(step))
    with pytest.raises(TrainingError):
        training.evaluate(cluster_timeout=1.0)
    assert training.clock == []


def test_an_evaluator_that_is_started_after_the_end_ends(training):
    training.begin()
    training.save(1)
    training.end(1)
    training.evaluate(train_steps=1)
    assert not (training.output / "metrics_evaluator.jsonl").exists()
    training.evaluate(cluster_timeout=0.3)  # There are steps left, but nobody trains.
    assert training.validated == [1]
