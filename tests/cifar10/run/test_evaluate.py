"""An evaluation of one checkpoint frees what it alone needed, and begins only if it can write."""

import pathlib
import weakref
from typing import Any

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.host.process import StopRequest
from cifar10.input.records import open_records
from cifar10.output import model_settings
from cifar10.run import evaluate as mode
from cifar10.run.evaluate import evaluate_split
from cifar10.run.job import make_job
from cifar10.run.kept_evaluation import KeptEvaluation
from tests.cifar10.saved import save_untrained


@pytest.fixture
def places(tutorial_data: pathlib.Path, tmp_path: pathlib.Path, monkeypatch) -> dict[str, Any]:
    """Settings of 23 eval images, with the checkpoint of an MLP."""
    # The pools of the tests' own process have their sizes already.
    monkeypatch.setattr("cifar10.run.job.use_devices", lambda *devices: None)
    found: dict[str, Any] = {"data_dir": str(tutorial_data), "output_dir": str(tmp_path / "output")}
    save_untrained(TrainConfig(model="mlp", **found))
    return {"model": "mlp", **found}


@pytest.mark.parametrize("augments", [False, True])
def test_the_session_with_augmentation_is_freed_at_once_and_the_jobs_is_kept(
    augments: bool, places: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    sessions: list[Any] = []
    build = KeptEvaluation._build

    def noted_build(kept: KeptEvaluation, data: Any) -> None:
        build(kept, data)
        sessions.append(weakref.ref(kept._session))

    monkeypatch.setattr(KeptEvaluation, "_build", noted_build)
    config = TrainConfig(**places, test_time_augmentation=augments)
    job = make_job(config, open_records(config.data_place))
    evaluation = evaluate_split(job, f"{config.output_dir}/model.ckpt-0", StopRequest())
    assert len(evaluation.labels) == 23
    assert ("augmented_accuracy" in evaluation.figures) == augments
    (session,) = sessions
    assert (session() is None) == augments
    assert job.evaluation._session is (None if augments else session())


def test_an_evaluation_whose_events_cannot_be_written_does_not_begin(places, tmp_path):
    folder = tmp_path / "output/eval"
    folder.write_text("a file")
    with pytest.raises(ConfigError) as refusal:
        mode.evaluate(TrainConfig(mode="evaluate", **places), StopRequest())
    message = str(refusal.value)
    assert message.startswith(f"the folder for event files {folder} cannot be written to: ")
    assert message.endswith("; name another one by --log-dir")


def test_an_evaluation_on_records_of_other_classes_is_refused(places):
    config = TrainConfig(mode="evaluate", **places)
    model_settings.write(config, tuple(f"shape-{index}" for index in range(10)))
    with pytest.raises(ConfigError, match="label 0 is 'shape-0'; in these records it is 'airplan"):
        mode.evaluate(config, StopRequest())
