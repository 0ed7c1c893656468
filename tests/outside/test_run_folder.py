"""A run's folder: checkpoints by name, and for TensorBoard one row a step, also after a kill."""

import json
import pathlib

import pytest
import tensorflow.compat.v1 as tf
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

from tests.cifar10 import program
from tests.cifar10.forks import Forks
from tests.documents import FORMATS, code_blocks
from tests.outside import snippets

pytestmark = pytest.mark.system

SETTINGS = (
    *("--model=mlp", "--optimizer=adam", "--learning-rate=0.001", "--schedule=constant"),
    *("--train-batch-size=20", "--keep-checkpoints=100", "--summary-steps=5", "--log-steps=7"),
)
SCALARS = ("loss", "accuracy", "learning_rate")
SAVE = """
import json
from tensorboard.backend.event_processing import event_accumulator
with open("rows.json", "w") as file:
    json.dump(rows, file)
"""
SAVE_COUNTERS = """
import json
found = {
    "channel_mean": weights["input/channel_mean"].tolist(),
    "global_step": int(weights["global_step"]),
    "examples_seen": int(weights["examples_seen"]),
}
with open("found.json", "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """180 training and 20 validation images."""
    return program.make_records(tmp_path_factory.mktemp("run") / "data", 200).parent


@pytest.fixture(scope="module")
def killed(folder: pathlib.Path, forks: Forks) -> pathlib.Path:
    """The output of a run of 60 steps that was killed after it had validated step 40.

    It goes on from step 20, as if it had been killed while it wrote the checkpoint of step 40: what
    it has left of later steps, validations too, is of steps that are trained again.
    """
    arguments = (*SETTINGS, "--train-steps=60", "--checkpoint-steps=20")
    with forks.started(*arguments, cwd=folder) as process:
        process.wait_until(lambda running: "at step 40" in running.out)
        process.kill()
    output = folder / "output"
    assert {25, 30, 35, 40} <= set(steps_in_files(output / "train"))
    assert {20, 40} == set(steps_in_files(output / "eval_validation"))
    with (output / "metrics.jsonl").open("a") as file:
        file.write('{"split": "train", "st')
    tf.train.update_checkpoint_state(str(output), "model.ckpt-20")
    done = forks.run(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "continuing at step 20 to step 60" in done.stdout
    return output


def steps_in_files(folder: pathlib.Path) -> list[int]:
    """The steps of all summaries, as they lie in the files."""
    return [
        event.step
        for path in sorted(folder.glob("events.*"))
        for event in tf.train.summary_iterator(str(path))
        if event.summary.value
    ]


def events(folder: pathlib.Path) -> EventAccumulator:
    """All of a folder's events by TensorBoard's rules."""
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0}).Reload()


def steps(found: EventAccumulator, tag: str) -> list[int]:
    return [event.step for event in found.Scalars(tag)]


def test_each_step_that_is_due_has_one_row_of_each_curve_for_the_web_pages_own_reader_too(killed):
    folder, found = str(killed / "train"), events(killed / "train")
    pages = plugin_event_accumulator.EventAccumulator(folder, size_guidance={"tensors": 0}).Reload()
    due = list(range(5, 61, 5))
    for tag in SCALARS:
        assert steps(found, tag) == [event.step for event in pages.Tensors(tag)] == [1, *due], tag
    assert steps(found, "images_per_sec") == due


def test_metrics_jsonl_has_the_losses_that_tensorboard_shows(killed):
    rows = [json.loads(line) for line in (killed / "metrics.jsonl").read_text().splitlines()]
    curve = {event.step: event.value for event in events(killed / "train").Scalars("loss")}
    losses = {row["step"]: row["loss"] for row in rows if row["split"] == "train"}
    assert losses == pytest.approx(curve, rel=1e-5)


def test_tensorboard_calls_the_runs_by_their_splits_and_drops_nothing_else(killed, caplog):
    found = EventMultiplexer().AddRunsFromDirectory(str(killed)).Reload()
    assert sorted(found.Runs()) == [".", "eval", "eval_validation", "train"]
    # All that it drops is of the steps that were trained again, and of the validation after them.
    purged = [line for line in caplog.messages if "xpired" in line or "urging" in line]
    assert all("step: 21" in line or "step: 20" in line for line in purged), purged


def test_each_checkpoint_has_one_validation_and_each_start_its_samples(killed):
    found = events(killed / "eval_validation")
    for tag in ("accuracy", "cross_entropy", "loss"):
        assert steps(found, tag) == [20, 40, 60], tag
    samples = events(killed / "train").Images("augmented_samples")
    assert [picture.step for picture in samples] == [1, 21]
    assert {(picture.width, picture.height) for picture in samples} == {(256, 32)}


def test_a_second_evaluation_takes_the_place_of_the_first(killed, folder, forks):
    metrics = json.loads((killed / "result.json").read_text())["figures"]
    done = forks.run("--mode=evaluate", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = events(killed / "eval")
    (row,) = found.Scalars("accuracy")
    assert row.step == metrics["best_validation_step"]
    assert row.value == pytest.approx(metrics["eval_accuracy"])


def test_the_pages_snippet_reads_the_same_rows(killed):
    (code,) = code_blocks(FORMATS, "Event files", "python")
    snippets.run_python(code + SAVE, killed.parent)
    rows = json.loads((killed.parent / "rows.json").read_text())
    assert [step for step, _ in rows] == steps(events(killed / "train"), "loss")
    assert all(0 < loss < 10 for _, loss in rows)


def test_the_pages_snippet_reads_a_checkpoint_by_the_names_of_its_values(killed):
    (code,) = code_blocks(FORMATS, "Checkpoints", "python")
    snippets.run_python(code + SAVE_COUNTERS, killed.parent)
    found = json.loads((killed.parent / "found.json").read_text())
    manifest = json.loads((killed.parent / "data" / "manifest.json").read_text())
    assert (found["global_step"], found["examples_seen"]) == (60, 1200)
    assert found["channel_mean"] == pytest.approx(manifest["channel_mean"])
