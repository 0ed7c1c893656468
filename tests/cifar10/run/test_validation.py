"""When validations end training: --early-stopping-epochs and --stop-at-accuracy."""

import math
import pathlib
from typing import Any, Callable

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.input.records import open_records
from cifar10.output import checkpoints
from cifar10.output.metrics import Metrics
from cifar10.run.validation import KeepBest, check_criteria, ended_before
from cifar10.step.devices import plan_devices
from cifar10.step.params import ModelParams
from tests.cifar10 import saved

PATIENT: dict[str, Any] = {"early_stopping_epochs": 2.0}


def rows(*accuracies: float, **first: Any) -> list[dict[str, Any]]:
    """Validations after each epoch of ten steps; `first` replaces values of the first one."""
    found = [
        {"step": 10 * n, "epoch": float(n), "loss": 1.0, "accuracy": accuracy, "seconds": 1.0}
        for n, accuracy in enumerate(accuracies, 1)
    ]
    found[0].update(first)
    return found


def keep(folder: pathlib.Path, validations: list[dict[str, Any]]) -> None:
    """Leaves the validations of a chief in an output folder."""
    metrics = Metrics(str(folder))
    for row in validations:
        metrics.add("validation", **row)


@pytest.fixture
def status(tmp_path: pathlib.Path) -> Callable[..., Any]:
    """A function that returns how training ends after validations of these accuracies."""

    def found(goal: dict[str, Any], *accuracies: float, **first: Any) -> Any:
        keep(tmp_path, rows(*accuracies, **first))
        ending = ended_before(TrainConfig(output_dir=str(tmp_path), **goal), 1_000)
        return ending and ending.status

    return found


@pytest.mark.parametrize(
    ("accuracies", "ends"),
    [
        ((0.5,), False),
        ((0.5, 0.4), False),
        ((0.5, 0.4, 0.4), True),
        ((0.5, 0.4, 0.6, 0.5), False),
        ((0.5, 0.4, 0.6, 0.5, 0.6), True),  # The same accuracy is no improvement.
        ((0.1, 0.2, 0.3, 0.4), False),
    ],
)
def test_training_ends_when_the_best_validation_is_so_many_epochs_ago(status, accuracies, ends):
    assert status(PATIENT, *accuracies) == ("stopped by --early-stopping-epochs" if ends else None)


def test_a_validation_whose_loss_overflows_is_not_the_best(status):
    assert status(PATIENT, 0.9, 0.4, 0.5, loss=math.inf) is None
    assert status(PATIENT, 0.9, 0.4, 0.5) == "stopped by --early-stopping-epochs"


@pytest.mark.parametrize(
    ("accuracy", "ends"), [(0.8999999761581421, True), (0.9, True), (0.8998, False)]
)
def test_training_ends_at_an_accuracy_as_float32_has_it(status, accuracy, ends):
    found = status({"stop_at_accuracy": 0.9}, 0.5, accuracy)
    assert found == ("stopped by --stop-at-accuracy" if ends else None)


def test_a_stopping_criterion_needs_validations(tutorial_data, tmp_path):
    for name in ("train", "eval"):
        (tmp_path / f"{name}.tfrecords").symlink_to(tutorial_data / f"{name}.tfrecords")
    records = open_records(str(tmp_path))
    check_criteria(TrainConfig(), records)
    for settings in ({"early_stopping_epochs": 1.0}, {"stop_at_accuracy": 0.5}):
        config = TrainConfig(**settings)
        check_criteria(config, open_records(str(tutorial_data)))
        with pytest.raises(ConfigError, match="need validations, but .* has no validation rec"):
            check_criteria(config, records)


def test_a_checkpoint_whose_loss_overflows_is_not_kept_as_the_best(tmp_path):
    # Another spelling of the output folder, whose curves Estimator writes: nothing is added there.
    config = TrainConfig(model="mlp", output_dir=str(tmp_path), log_dir=f"{tmp_path}/.")
    checkpoint, lines = saved.save_untrained(config), []
    params = ModelParams(config, plan_devices(config))
    best = KeepBest(params, Metrics(str(tmp_path)), lines.append)
    for step, loss, accuracy in ((10, math.inf, 0.9), (20, 1.0, 0.5)):
        found = {"global_step": step, "cross_entropy": loss, "accuracy": accuracy}
        best.export(None, "", checkpoint, found, False)
    assert [line.endswith("(best so far)") for line in lines] == [False, True]
    assert checkpoints.best(str(tmp_path)).step == 20


def test_a_run_that_starts_again_judges_the_validations_before_it(tmp_path):
    config = TrainConfig(output_dir=str(tmp_path), **PATIENT)
    keep(tmp_path, rows(0.5, 0.4, 0.4))
    assert ended_before(config, 20) is None
    ending = ended_before(config, 30)
    assert ending is not None
    assert ending.status == "stopped by --early-stopping-epochs"
    assert "above 0.5000 of step 10" in ending.line
    (tmp_path / "metrics.jsonl").unlink()  # as docs/troubleshooting.md says of a damaged one
    assert ended_before(config, 30) is None
