"""What a run starts from."""

import json
import types
from typing import Any

import pytest

from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig, TrainingPosition
from cifar10.errors import ConfigError
from cifar10.input.records import open_records
from cifar10.output import model_settings, run_file
from cifar10.output.metrics import Metrics
from cifar10.run import start
from cifar10.run.job import Job
from cifar10.run.start import step_of_end
from cifar10.schema import CLASS_NAMES
from tests.unprivileged import open_folder, unprivileged


def test_a_worker_that_may_not_read_the_folder_of_the_chief_does_not_know_the_end(tutorial_data):
    jobs = {"master": ("a:1",), "worker": ("b:1",)}
    cluster = Cluster(jobs, "worker", 0, has_evaluator=False, source="TF_CONFIG")
    records = open_records(str(tutorial_data))
    with open_folder() as folder:
        (folder / "output").mkdir(0)
        with unprivileged():
            assert step_of_end(TrainConfig(output_dir=f"{folder}/output"), cluster, records) is None


def test_the_files_of_an_older_run_are_renamed_and_its_owner_stays(tmp_path, capsys):
    place = str(tmp_path)
    owner = run_file.read_or_make_owner(place)
    Metrics(place).save()
    start._set_older_aside(place)
    assert capsys.readouterr().out == ""  # It has begun nothing.
    Metrics(place).add("eval", 3, loss=1.0)
    start._set_older_aside(place)
    assert run_file.read(place).owner == owner
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "metrics.jsonl.older",
        "run.json",
        "run.json.older",
    ]
    # The next start writes run.json: if this one were killed between, it would be lost.
    assert capsys.readouterr().out.splitlines() == [
        f"{place}/{name} is of an older run; it is now {place}/{name}.older"
        for name in ("run.json", "metrics.jsonl")
    ]


@pytest.mark.parametrize("is_new", [True, False])
def test_what_is_left_is_renamed_only_where_a_new_run_begins(tmp_path, is_new):
    Metrics(str(tmp_path)).add("eval", 3, loss=1.0)
    records = types.SimpleNamespace(class_names=CLASS_NAMES, resize=None)
    job: Any = types.SimpleNamespace(config=TrainConfig(output_dir=str(tmp_path)), records=records)
    start.record_model(job, is_new)
    assert (tmp_path / "metrics.jsonl").exists() != is_new


def test_what_is_trained_again_and_half_a_line_leave_the_file_of_rows(tmp_path):
    for step in (10, 30):
        Metrics(str(tmp_path)).add("eval", step, loss=1.0)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"split": "tr')
    config = TrainConfig(output_dir=str(tmp_path))
    records: Any = types.SimpleNamespace(has_validation=True)
    cluster: Any = types.SimpleNamespace(has_evaluator=True)
    params = types.SimpleNamespace(position=TrainingPosition(20, 200))
    start.prepare_folder(Job(config, records, params, cluster))
    (row,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(row)["step"] == 10


def test_a_run_of_another_model_is_refused_before_it_changes_a_file(tmp_path):
    model_settings.write(TrainConfig(output_dir=str(tmp_path), num_layers=20), CLASS_NAMES)
    (tmp_path / "model.ckpt-3.index").write_text("damaged")
    (tmp_path / "left.0123abcd.part").write_text("unfinished")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="num-layers=20"):
        start.find_start(TrainConfig(output_dir=str(tmp_path), num_layers=8), CLASS_NAMES)
    assert sorted(tmp_path.iterdir()) == before
