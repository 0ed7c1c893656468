"""The program from its command line to its exit code."""

import gc
import json
import pathlib
import re
import shutil
import signal
import subprocess
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10 import main
from cifar10.config.train_config import TrainConfig
from cifar10.host.signals import StopRequest
from cifar10.output import checkpoints, run_status
from cifar10.run import master
from tests.cifar10 import program
from tests.documents import check_fields, check_files

# 180 training, 20 validation and 40 eval images; a step takes milliseconds.
SMALL = ("--model=mlp", "--train-batch-size=16", "--train-epochs=2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A folder with records in its default place."""
    return program.make_records(tmp_path_factory.mktemp("work") / "data", 200).parent


@pytest.fixture(scope="module")
def trained(folder) -> "subprocess.CompletedProcess[str]":
    """A run from beginning to end with nothing but the defaults for its places."""
    return program.run(*SMALL, cwd=folder)


def weights(output: pathlib.Path) -> dict[str, np.ndarray]:
    """Every variable of the latest checkpoint."""
    reader = tf.train.load_checkpoint(str(output))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert sorted(one) == sorted(other)
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def tags(folder: pathlib.Path, pattern: str) -> set[str]:
    """The tags of all TensorBoard summaries in event files."""
    return {
        value.tag
        for path in sorted(folder.glob(pattern))
        for event in tf.train.summary_iterator(str(path))
        for value in event.summary.value
    }


def test_the_garbage_collector_never_looks_at_the_modules(monkeypatch):
    seen = []

    def work(*_: Any) -> None:
        seen.append((gc.isenabled(), gc.get_freeze_count() > 100_000))

    monkeypatch.setattr(master, "train_and_evaluate", work)
    main._run(TrainConfig(), None, StopRequest(), 0.0)
    gc.unfreeze()
    assert seen == [(True, True)]


def test_a_run_prints_what_it_does_and_nothing_of_tensorflow(trained):
    assert trained.stderr == ""
    assert trained.returncode == 0
    lines = trained.stdout.splitlines()
    assert lines[0].startswith("MLP, 100 hidden units, 2 towers on") or "1 tower on" in lines[0]
    assert lines[1] == "data: synthetic, 180 train, 20 validation, 40 eval (data)"
    assert lines[2] == "training to step 23; output: output"
    assert any(line.startswith("validation accuracy 0.") for line in lines)
    assert lines[-4].startswith("eval accuracy 0.")
    assert lines[-4].endswith(" on 40 images, completed")
    assert lines[-3:-1] == ["report: output/report.html", "result: output/result.json"]
    assert not [line for line in lines if "tensorflow" in line.lower() or "WARNING" in line]


def test_a_run_leaves_result_report_best_checkpoint_and_export(trained, folder):
    output = folder / "output"
    result = json.loads((output / "result.json").read_text())
    assert result["status"] == "completed"
    assert result["model"] == "MLP, 100 hidden units"
    assert result["figures"]["global_step"] == 23
    assert result["figures"]["examples_seen"] == 23 * 16
    assert result["figures"]["eval_examples"] == 40
    assert result["figures"]["num_parameters"] == 3072 * 100 + 100 + 100 * 10 + 10
    assert sum(map(sum, result["confusion_matrix"])) == 40
    assert result["configuration"]["train_batch_size"] == 16
    assert result["versions"]["tensorflow"] == "2.15.1"
    assert result["data"]["source"]["kind"] == "synthetic"
    assert [row["step"] for row in result["history"]["validation"]] == [12, 23]
    assert "<html" in (output / "report.html").read_text()
    assert list(output.glob("best/model.ckpt-*.index"))
    assert list(output.glob("export/*/saved_model.pb"))


def test_the_documents_name_every_field_of_every_file(trained, folder):
    output = folder / "output"
    result = json.loads((output / "result.json").read_text())
    assert check_fields("docs/data.md", "manifest.json", result.pop("data")) == ([], [])
    own = {"train[].own_images_per_sec"}
    for history in (result.pop("history"), json.loads((output / "history.json").read_text())):
        unnamed, unused = check_fields("docs/outputs.md", "history.json", history)
        assert (unnamed, set(unused)) == ([], own)
    found = {**result, "data": None, "history": None}
    unnamed, unused = check_fields("docs/outputs.md", "result.json", found)
    assert unnamed == []
    assert {field.partition(".")[0] for field in unused} == {"cluster", "init_checkpoint"}
    lines = (output / "metrics.jsonl").read_text().splitlines()
    rows = {key: value for line in lines for key, value in json.loads(line).items()}
    assert check_fields("docs/outputs.md", "metrics.jsonl", rows) == ([], ["augmented_accuracy"])
    run_status.touch_mark(str(output))
    for name in ("model.json", "training.json", "best/best.json", "evaluator.json"):
        content = json.loads((output / name).read_text())
        heading = name.rpartition("/")[2]
        assert check_fields("docs/outputs.md", heading, content) == ([], []), name
    run_status.remove_mark(str(output))


def test_figures_have_the_digits_that_people_write(trained, folder):
    result = json.loads((folder / "output/result.json").read_text())
    del result["data"]

    def long_ones(value: Any, name: str = "") -> list[str]:
        if isinstance(value, dict):
            return [found for key, one in value.items() for found in long_ones(one, key)]
        if isinstance(value, list):
            return [found for one in value for found in long_ones(one, name)]
        digits = 20 if name.endswith("seconds") else 6
        is_long = isinstance(value, float) and float(f"{value:.{digits}g}") != value
        return [f"{name}: {value}"] if is_long else []

    assert long_ones(result) == []
    rows = [json.loads(line) for line in (folder / "output/metrics.jsonl").read_text().splitlines()]
    assert {row["split"] for row in rows} == {"train", "validation", "eval"}
    for row in rows:
        del row["wall_time"]
    assert long_ones(rows) == []


def test_the_documents_name_every_file_of_the_output_folder(trained, folder):
    unnamed, unused = check_files("docs/outputs.md", "The output folder", folder / "output")
    assert unnamed == []
    assert unused == [
        *("owner.json", "history_validation.json", "evaluator.json", "metrics_evaluator.jsonl"),
        *("profile.txt", "train/plugins/profile/TIME/", "trained_by.json"),
        *("seed-SEED/", "seeds.json"),
    ]


def test_tensorboard_gets_scalars_samples_and_the_confusion_matrix(trained, folder):
    output = folder / "output"
    curves = {"loss", "accuracy", "learning_rate", "images_per_sec"}
    assert curves <= tags(output / "train", "events.*")
    assert "augmented_samples" in tags(output / "train", "events.*")
    expected = {"accuracy", "cross_entropy", "confusion_matrix"}
    assert expected <= tags(output, "validation/events.*")
    assert expected <= tags(output, "eval/events.*")


def test_a_finished_run_is_not_trained_or_evaluated_again(trained, folder, forks):
    before = (folder / "output/result.json").read_bytes()
    again = forks.run(*SMALL, cwd=folder)
    assert again.returncode == 0
    assert again.stdout.startswith("already trained to step 23: eval accuracy 0.")
    assert (folder / "output/result.json").read_bytes() == before


def test_a_run_that_ended_before_its_figures_makes_them_without_training(trained, folder, forks):
    unfinished = folder / "unfinished"
    shutil.copytree(folder / "output", unfinished)
    (unfinished / "result.json").unlink()
    again = forks.run(*SMALL, "--output-dir=unfinished", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert "\nepoch " not in again.stdout
    before, after = (
        json.loads((folder / name / "result.json").read_text())["figures"]
        for name in ("output", "unfinished")
    )
    assert after["eval_accuracy"] == before["eval_accuracy"]
    assert after["training_seconds"] == before["training_seconds"]


def test_the_same_seed_gives_the_same_weights_and_log_dir_takes_the_events(trained, folder, forks):
    other = forks.run(*SMALL, "--job_dir=twin", "--log_dir=logs", cwd=folder)
    assert other.returncode == 0
    assert_same(weights(folder / "output"), weights(folder / "twin"))
    assert {"loss", "images_per_sec"} <= tags(folder / "logs/train", "events.*")
    assert (folder / "logs/metrics.jsonl").exists()
    expected = {"accuracy", "cross_entropy", "confusion_matrix"}
    assert expected <= tags(folder / "logs", "validation/events.*")
    assert expected <= tags(folder / "logs", "eval/events.*")
    assert list((folder / "twin").rglob("events.*")) == []


def test_a_run_killed_and_started_again_ends_with_the_same_weights(trained, folder, forks):
    arguments = (*SMALL, "--output-dir=killed", "--checkpoint-steps=5")
    with program.started(*arguments, cwd=folder) as process:
        program.wait_for(folder / "killed", "model.ckpt-10.index", process)
        process.send_signal(signal.SIGKILL)
    again = forks.run(*arguments, cwd=folder)
    assert again.returncode == 0, again.stderr
    assert "continuing at step" in again.stdout
    assert_same(weights(folder / "output"), weights(folder / "killed"))


def test_a_signal_saves_and_ends_with_its_exit_code(folder):
    output = folder / "stopped"
    arguments = ("--model=mlp", "--train-batch-size=16", f"--output-dir={output}", "--log-steps=1")
    with program.started(*arguments, "--checkpoint-steps=1000000", cwd=folder) as process:
        # Only the signal can make a checkpoint with a step above 0.
        program.wait_for_line("epoch ", process)
        ended, out, err = program.interrupt(process, signal.SIGTERM)
    assert ended == 143
    step = int(weights(output)["global_step"])
    assert out.splitlines()[-1] == f"saved {output}/model.ckpt-{step}"
    assert err == "stopped by signal 15; run the same command to continue\n"
    assert step > 0
    assert not (output / "result.json").exists()


def test_max_minutes_ends_a_run_with_all_its_figures(folder, forks):
    arguments = ("--model=mlp", "--max-minutes=0.01", "--output-dir=short")
    ended = forks.run(*arguments, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((folder / "short/result.json").read_text())
    assert result["status"] == "stopped by --max-minutes"
    assert 1 <= result["figures"]["global_step"] < 80_000
    assert result["history"]["validation"][-1]["step"] == result["figures"]["global_step"]


def test_early_stopping_ends_a_run_and_its_restart_at_the_validated_checkpoint(folder, forks):
    # A rate that changes nothing: the first validation remains the best.
    arguments = ("--model=mlp", "--learning-rate=1e-20", "--train-epochs=50", "--warmup-epochs=0")
    arguments += ("--train-batch-size=18", "--output-dir=patient", "--early-stopping-epochs=2")
    line = "training ends: validation accuracy has not risen above "
    for start in ("training to step 500", "continuing at step 30 to step 500"):
        ended = forks.run(*arguments, cwd=folder)
        assert ended.returncode == 0, ended.stderr
        assert f"{start}; output: patient\n" in ended.stdout
        assert f"\n{line}" in ended.stdout
        assert ", stopped by --early-stopping-epochs\n" in ended.stdout
        result = json.loads((folder / "patient/result.json").read_text())
        assert result["status"] == "stopped by --early-stopping-epochs"
        assert result["figures"]["global_step"] == 30
        assert result["figures"]["best_validation_step"] == 10
        assert [row["step"] for row in result["history"]["validation"]] == [10, 20, 30]
        # As if the process had been killed before it wrote its figures.
        (folder / "patient/result.json").unlink()
    assert "\nvalidation accuracy" not in ended.stdout


def test_a_run_that_a_goal_has_ended_goes_on_if_the_goal_is_left_out(folder, forks):
    arguments = ("--model=mlp", "--train-steps=30", "--train-batch-size=18", "--output-dir=enough")
    ended = forks.run(*arguments, "--stop-at-accuracy=1e-9", cwd=folder)
    assert "at step 10 has reached --stop-at-accuracy 1e-09\n" in ended.stdout, ended.stderr
    again = forks.run(*arguments, "--stop-at-accuracy=1e-9", cwd=folder)
    assert again.stdout.startswith("already trained to step 10: eval accuracy ")
    assert "\nto train on, raise --stop-at-accuracy or leave it out; " in again.stdout
    on = forks.run(*arguments, cwd=folder)
    assert "continuing at step 10 to step 30" in on.stdout
    result = json.loads((folder / "enough/result.json").read_text())
    assert (result["status"], result["figures"]["global_step"]) == ("completed", 30)


def test_a_run_that_continues_with_other_batches_has_its_epochs(folder, forks):
    arguments = ("--model=mlp", "--output-dir=batches")
    forks.run(*arguments, "--train-epochs=1", "--train-batch-size=18", cwd=folder)
    # 180 images were 10 steps; the second epoch is 5 steps of 36 images.
    on = forks.run(*arguments, "--train-epochs=2", "--train-batch-size=36", cwd=folder)
    assert "continuing at step 10 to step 15" in on.stdout, on.stderr
    result = json.loads((folder / "batches/result.json").read_text())
    figures = result["figures"]
    assert (figures["global_step"], figures["epochs"], result["status"]) == (15, 2.0, "completed")
    again = forks.run(*arguments, "--train-epochs=2", "--train-batch-size=90", cwd=folder)
    assert again.stdout.startswith("already trained to step 15: eval accuracy ")


def test_a_run_remembers_after_a_restart_from_which_weights_it_started(trained, folder, forks):
    arguments = ("--model=mlp", "--train-batch-size=18", "--output-dir=tuned")
    first = forks.run(*arguments, "--init-checkpoint=output", "--train-steps=2", cwd=folder)
    assert first.stdout.startswith("starting from output/best/model.ckpt-"), first.stderr
    second = forks.run(*arguments, "--init-checkpoint=output", "--train-steps=4", cwd=folder)
    assert second.stdout.startswith(
        "note: --init-checkpoint output is not read: this run continues from its own "
        "tuned/model.ckpt-2; name another --output-dir to start anew\n"
    )
    for done in (second, forks.run(*arguments, "--train-steps=5", cwd=folder)):
        assert done.returncode == 0, done.stderr
        start = json.loads((folder / "tuned/result.json").read_text())["init_checkpoint"]
        assert start["path"].startswith("output/best/model.ckpt-")
        assert (start["loaded"], start["not_loaded"]) == (4, [])


def test_a_wrong_init_checkpoint_is_one_line_and_exit_code_2_and_leaves_nothing(folder, forks):
    arguments = ("--model=mlp", "--hidden-units=7", "--output-dir=refused")
    ended = forks.run(*arguments, "--init-checkpoint=output", cwd=folder)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: --init-checkpoint output/best/model.ckpt-")
    assert ended.stderr.endswith("; it was trained with --hidden-units=100\n")
    assert ended.stderr.count("\n") == 1
    assert not list((folder / "refused").glob("model*"))


def test_max_minutes_ends_a_run_with_lookahead_with_its_average(folder, forks):
    arguments = ("--model=mlp", "--learning-rate=0.01", "--lookahead-steps=2")
    arguments += ("--train-batch-size=16", "--output-dir=averaged")
    # Its fourth step is a pull; the run that goes on has the time for a fifth one only.
    first = forks.run(*arguments, "--train-steps=4", cwd=folder)
    assert first.returncode == 0, first.stderr
    ended = forks.run(*arguments, "--train-steps=400", "--max-minutes=0.001", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((folder / "averaged/result.json").read_text())
    assert (result["status"], result["figures"]["global_step"]) == ("stopped by --max-minutes", 5)
    saved, suffix = weights(folder / "averaged"), "/Lookahead"
    averages = [name for name in saved if name.endswith(suffix)]
    assert averages
    for name in averages:
        np.testing.assert_array_equal(saved[name.removesuffix(suffix)], saved[name], err_msg=name)


def test_places_may_be_given_relative_to_the_work_dir(trained, folder, tmp_path, forks):
    evaluated = forks.run("--mode=evaluate", f"--work_dir={folder}", cwd=tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr
    accuracy = json.loads((folder / "output/result.json").read_text())["figures"]["eval_accuracy"]
    assert f"eval accuracy {accuracy:.4f}, loss" in evaluated.stdout


def test_predict_names_the_likeliest_classes_of_each_file(trained, folder, forks):
    from PIL import Image

    Image.new("RGB", (32, 32), "red").save(folder / "red.png")
    Image.new("L", (100, 50), 128).save(folder / "grey.jpg")
    predicted = forks.run("--mode", "predict", "red.png", "grey.jpg", cwd=folder)
    assert predicted.returncode == 0, predicted.stderr
    lines = predicted.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["red.png", "grey.jpg"]
    assert all(line.count("%") == 3 for line in lines)
    assert "(" not in lines[0]
    assert lines[1].endswith("  (100x50, stretched to 32x32)")
    (folder / "photos").mkdir()
    (folder / "photos/bad.gif").write_text("no image")
    Image.new("RGB", (32, 32), "blue").save(folder / "photos/good.webp")
    mixed = forks.run("--mode=predict", "photos", "*red.p?g", "--json", cwd=folder)
    assert mixed.returncode == 2
    files = [json.loads(line)["file"] for line in mixed.stdout.splitlines()]
    assert files == ["photos/bad.gif", "photos/good.webp", "red.png"]
    bad, end = mixed.stderr.splitlines()
    assert bad.startswith("error: photos/bad.gif: not a sound PNG, JPEG, WEBP, GIF or BMP image: ")
    assert end == "error: 1 of 3 image files could not be used; the lines above name them"


def test_export_is_quiet_unless_verbose(trained, folder, forks):
    quiet = forks.run("--mode=export", cwd=folder)
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert quiet.stdout.startswith("export: output/export/")
    verbose = forks.run("--mode=export", "--verbose", cwd=folder)
    assert verbose.returncode == 0
    assert "tensorflow" in verbose.stderr


def test_a_reader_that_goes_away_does_not_end_the_run(trained, folder):
    with program.started("--mode=evaluate", cwd=folder) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-", "2>&-"])
def test_a_run_without_standard_streams_is_complete(folder, tmp_path, closed):
    words = program.command("--model=mlp", "--train-steps=2", f"--output-dir={tmp_path}")
    shell = ["bash", "-c", f'exec "$@" {closed}', "bash", *words]
    ended = subprocess.run(shell, cwd=folder, env=program.environment(), capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "completed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train-steps=many"], "--train-steps must be a whole number, got 'many'"),
        (["--data-dir=nowhere"], "no records in nowhere; `python -m data_prep --source"),
        (
            ["--mode=predict", "data/manifest.json"],
            "data/manifest.json: not a sound PNG, JPEG, WEBP",
        ),
    ],
    ids=["before TensorFlow loads", "of a training", "of another mode"],
)
def test_a_mistake_is_one_line_and_exit_code_2(trained, folder, arguments, message):
    # In a process of its own: what TensorFlow prints while it loads would be further lines.
    ended = program.run(*arguments, cwd=folder)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: {message}")
    assert ended.stderr.count("\n") == 1


def test_records_without_manifest_or_validation_split_are_trained_on(folder, forks):
    data = folder / "tutorial"
    data.mkdir()
    for split in ("train", "eval"):
        (data / f"{split}.tfrecords").write_bytes((folder / f"data/{split}.tfrecords").read_bytes())
    arguments = ("--data-dir=tutorial", "--output-dir=tutorial-output")
    ended = forks.run(*SMALL, *arguments, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((folder / "tutorial-output/result.json").read_text())
    assert result["figures"]["best_validation_accuracy"] is None
    assert result["figures"]["eval_examples"] == 40


def test_a_second_run_in_the_folder_is_refused_and_the_first_goes_on(folder, forks):
    words = ("--model=mlp", "--train-batch-size=16", "--output-dir=shared", "--checkpoint-steps=5")
    with program.started(*words, "--train-steps=100000", cwd=folder) as first:
        program.wait_for(folder / "shared", "model.ckpt-5.index", first)
        second = forks.run(*words, "--train-steps=100000", cwd=folder)
        assert second.returncode == 2
        assert re.fullmatch(
            rf"error: shared is used by another training: process {first.pid} on .+, which "
            r"started 20.*; wait until it has ended, or name another --output-dir\n",
            second.stderr,
        )
        first.kill()
        first.wait()
    # The lock of a killed process is taken over.
    step = checkpoints.latest_step(str(folder / "shared"))
    third = forks.run(*words, f"--train-steps={step + 10}", cwd=folder)
    assert (third.returncode, third.stderr) == (0, "")
    assert f"continuing at step {step:,} to step {step + 10:,}" in third.stdout
    assert not list((folder / "shared").glob("*.lock*"))


def test_a_run_that_another_ones_log_dir_is_given_to_is_refused(folder, forks):
    words = ("--model=mlp", "--train-batch-size=16", "--log-dir=curves", "--checkpoint-steps=5")
    with program.started(
        *words, "--train-steps=100000", "--output-dir=curves-of-1", cwd=folder
    ) as first:
        program.wait_for(folder / "curves-of-1", "model.ckpt-5.index", first)
        second = forks.run(*words, "--train-steps=5", "--output-dir=curves-of-2", cwd=folder)
        first.kill()
        first.wait()
    assert second.returncode == 2
    assert re.fullmatch(
        rf"error: curves is used by another training: process {first.pid} on .+, which "
        r"started 20.*; wait until it has ended, or name another --log-dir\n",
        second.stderr,
    )
    steps = [
        row["step"]
        for row in map(json.loads, (folder / "curves/metrics.jsonl").read_text().splitlines())
        if row["split"] == "train"
    ]
    assert steps == sorted(set(steps))


def test_after_a_loss_that_is_not_finite_the_next_start_continues_from_finite_weights(
    folder, forks
):
    def train(output: str, steps: int, *more: str) -> "subprocess.CompletedProcess[str]":
        words = (f"--train-steps={steps}", "--checkpoint-steps=4", f"--output-dir={output}")
        return forks.run("--model=mlp", "--train-batch-size=16", *words, *more, cwd=folder)

    assert train("nan", 4).returncode == 0
    failed = train("nan", 8, "--learning-rate=1e9")
    assert failed.returncode == 1
    assert failed.stderr.startswith(
        "training failed: the loss is nan at step 7, with learning rate"
    )
    assert "on the images 97 to 112 of this training; nothing of that was saved" in failed.stderr
    assert "and the next start continues from step 4: give it a lower" in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert train("nan", 8).returncode == 0
    for steps in (4, 8):
        assert train("finite", steps).returncode == 0
    assert_same(weights(folder / "nan"), weights(folder / "finite"))


@pytest.mark.parametrize(
    ("tf_config", "arguments", "message"),
    [
        ("{oops", [], "'{oops' is not JSON"),
        (
            # A ps at an address of TEST-NET-1, which no machine has.
            '{"cluster": {"chief": ["192.0.2.1:2222"], "ps": ["192.0.2.1:2223"]},'
            ' "task": {"type": "ps", "index": 0}}',
            [],
            "ps/0 is at 192.0.2.1:2223, but 192.0.2.1 is no address of this machine",
        ),
        ("", ["--job-name=worker"], "--job-name worker needs a cluster; give --worker-hosts"),
    ],
)
def test_a_mistake_in_a_cluster_is_one_line_and_exit_code_2(
    tmp_path, tf_config, arguments, message
):
    ended = program.run(*arguments, cwd=tmp_path, tf_config=tf_config)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: {message}")
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_of_one_trains_as_a_single_process(trained, folder, forks):
    # Nobody else is there, so nobody has to reach it at its address.
    tf_config = """{
      "cluster": {"chief": ["nowhere.invalid:2222"]},
      "task": {"type": "chief", "index": 0},
      "environment": "cloud"
    }"""
    ended = forks.run(*SMALL, "--output-dir=alone", cwd=folder, tf_config=tf_config)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert_same(weights(folder / "output"), weights(folder / "alone"))


def test_other_modes_run_alone_on_the_master_of_a_cluster(trained, folder, forks):
    tf_config = """{
      "cluster": {"master": ["ip0:2222"], "ps": ["ip0:2223"], "worker": ["ip1:2222"]},
      "task": {"type": "master", "index": 0}
    }"""
    ended = forks.run("--mode=evaluate", "--sync=false", cwd=folder, tf_config=tf_config)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "eval accuracy 0." in ended.stdout


FAST = ("--recipe=fast", "--train-batch-size=20", "--train-steps=6", "--output-dir=fast")


@pytest.fixture(scope="module")
def fast(folder, forks) -> "subprocess.CompletedProcess[str]":
    """The fast recipe, in six steps."""
    return forks.run(*FAST, cwd=folder)


def test_a_recipe_trains_from_beginning_to_end_and_result_json_names_it(fast, folder):
    assert fast.returncode == 0, fast.stderr
    assert fast.stderr == ""
    result = json.loads((folder / "fast/result.json").read_text())
    assert (result["recipe"], result["model"]) == ("fast", "fastnet")
    configuration = result["configuration"]
    assert (configuration["recipe"], configuration["train_steps"]) == ("fast", 6)
    assert (configuration["train_epochs"], configuration["norm_bias_rate"]) == (None, 64)
    figures = result["figures"]
    assert figures["num_parameters"] == 1_967_616 + 2_560 + 24 + 1_152
    assert 0 <= figures["eval_accuracy_augmented"] <= 1
    line = f"{figures['eval_accuracy_augmented']:.4f} with test-time augmentation, completed"
    assert line in fast.stdout


def test_the_other_modes_know_fastnet_by_its_folder(fast, folder, forks):
    done = forks.run("--mode=evaluate", "--output-dir=fast", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads((folder / "fast/result.json").read_text())["figures"]
    assert f"eval accuracy {figures['eval_accuracy']:.4f}" in done.stdout
    assert "test-time" not in done.stdout
