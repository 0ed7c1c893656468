"""The program from its command line to its exit code."""

import json
import os
import pathlib
import shutil
import signal
import subprocess

import numpy as np
import pytest
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cifar10 import main
from cifar10.cluster.spec import Cluster
from tests.cifar10 import program
from tests.cifar10.steps import read_checkpoint
from tests.documents import check_fields, check_files

# 180 training, 20 validation and 40 eval images; a step takes milliseconds.
SMALL = ("--model=mlp", "--train-batch-size=16", "--train-epochs=2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A folder whose data/ has records."""
    return program.make_records(tmp_path_factory.mktemp("work") / "data", 200).parent


@pytest.fixture(scope="module")
def trained(folder) -> "subprocess.CompletedProcess[str]":
    """A run from beginning to end with nothing but the defaults for its folders."""
    return program.run(*SMALL, cwd=folder)


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
    run = json.loads((output / "run.json").read_text())
    assert check_fields("docs/outputs.md", "run.json of a training", run) == ([], [])
    found = {**result, "data": None, "history": None}
    assert check_fields("docs/outputs.md", "result.json", found) == ([], [])
    lines = (output / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    curves = {
        split: [row for row in rows if row["split"] == split] for split in ("train", "validation")
    }
    assert result["history"] == curves
    columns = {key: value for row in rows for key, value in row.items()}
    unused = ["augmented_accuracy", "own_images_per_sec"]
    assert check_fields("docs/outputs.md", "metrics.jsonl", columns) == ([], unused)
    best = json.loads((output / "best/best.json").read_text())
    assert check_fields("docs/outputs.md", "best.json", best) == ([], [])


def test_the_documents_name_every_file_of_the_output_folder(trained, folder):
    unnamed, unused = check_files("docs/outputs.md", "The output folder", folder / "output")
    assert unnamed == []
    assert unused == ["metrics_evaluator.jsonl", "train/plugins/profile/TIME/"]


# Kills its process at a call whose `self` and further arguments meet a condition.
KILLED = """
import os, signal, sys
from cifar10 import main
from cifar10.run import training_hook, validation
def kill_at(owner, name, is_here):
    real = getattr(owner, name)
    def call(*arguments, **named):
        if is_here(*arguments, **named):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)
    setattr(owner, name, call)
{kill}
sys.exit(main.main(sys.argv[1:]))
"""
KILLS = (
    # Between two steps.
    "kill_at(training_hook.ChiefHook, 'before_run', lambda hook, context: hook.step == 8)",
    # The rows of a checkpoint have been written, the checkpoint has not.
    "kill_at(validation.tf.train.Saver, 'save', lambda *a, global_step, **k: global_step == 10)",
    # A checkpoint has been written and validated; the row of that has not been written.
    "kill_at(validation.KeepBest, 'export', lambda *a, **k: 15 in k['eval_result'].values())",
    "",
)


def test_a_run_that_is_killed_takes_records_and_shows_each_step_once(trained, folder, forks):
    folders = [f"--data-dir={folder}/data", f"--job_dir={folder}/killed", f"--log_dir={folder}/log"]
    arguments = (*SMALL, *folders, "--checkpoint-steps=5", "--summary-steps=1")
    codes = [forks.run_code(KILLED.format(kill=kill), *arguments).returncode for kill in KILLS]
    assert codes == [-signal.SIGKILL] * 3 + [0]
    np.testing.assert_equal(*(read_checkpoint(f"{folder}/{name}") for name in ("output", "killed")))
    lines = (folder / "killed/metrics.jsonl").read_text().splitlines()
    steps: dict[str, list[int]] = {}
    for row in map(json.loads, lines):
        steps.setdefault(row["split"], []).append(row["step"])
    (best,) = steps["eval"]
    every_fifth = [5, 10, 15, 20, 23]
    assert steps == {"train": list(range(1, 24)), "validation": every_fifth, "eval": [best]}
    # As TensorBoard shows them: it drops what a later process has taken back.
    shown = {"train": steps["train"], "eval_validation": every_fifth, "eval": [best]}
    for name, expected in shown.items():
        curves = EventAccumulator(str(folder / "log" / name)).Reload()
        assert [event.step for event in curves.Scalars("loss")] == expected, name
    train = str(folder / "log/train")
    pictures = EventAccumulator(train, size_guidance={"images": 0}).Reload()
    assert [event.step for event in pictures.Images("augmented_samples")] == [1, 6, 16]
    # The web page has a reader of its own.
    pages = plugin_event_accumulator.EventAccumulator(train).Reload()
    assert [event.step for event in pages.Tensors("loss")] == steps["train"]
    # Estimator writes the graph and its validations into the output folder.
    validations = EventAccumulator(str(folder / "killed/eval_validation")).Reload()
    for tag in ("accuracy", "cross_entropy", "loss"):
        assert [event.step for event in validations.Scalars(tag)] == every_fifth, tag
    written = {path.parent.name for path in (folder / "killed").rglob("events.*")}
    assert written == {"killed", "eval_validation"}


def test_a_signal_saves_and_ends_with_its_exit_code(folder, forks):
    output = folder / "stopped"
    arguments = ("--model=mlp", "--train-batch-size=16", f"--output-dir={output}", "--log-steps=1")
    with forks.started(*arguments, "--checkpoint-steps=1000000", cwd=folder) as process:
        # Only the signal can make a checkpoint with a step above 0.
        process.wait_until(lambda running: "\nepoch " in running.out)
        ended, out, err = process.interrupt(signal.SIGTERM)
    assert ended == 143
    step = int(read_checkpoint(str(output))["global_step"])
    assert out.splitlines()[-1] == f"saved {output}/model.ckpt-{step}"
    assert err == "stopped by signal 15; run the same command to continue\n"
    assert step > 0
    assert not (output / "result.json").exists()


def test_a_run_that_is_refused_leaves_the_files_of_an_older_one_as_they_are(trained, folder, forks):
    output = folder / "older"
    shutil.copytree(folder / "output", output)
    for path in output.glob("model.ckpt-*"):
        path.unlink()
    (output / "checkpoint").unlink()
    before = sorted(output.rglob("*"))
    done = forks.run(*SMALL, "--num-gpus=99", f"--output-dir={output}", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert sorted(output.rglob("*")) == before


def test_a_damaged_checkpoint_costs_no_more_than_the_steps_since_the_last_sound_one(
    trained, folder, forks
):
    output = folder / "damaged"
    shutil.copytree(folder / "output", output)
    (output / "model.ckpt-23.index").write_bytes(np.random.default_rng(0).bytes(200))
    again = forks.run(*SMALL, f"--output-dir={output}", "--verbose", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert "INFO:tensorflow:" in again.stderr
    assert "model.ckpt-23 is damaged (" in again.stdout
    assert "continuing at step 12 to step 23" in again.stdout
    np.testing.assert_equal(read_checkpoint(f"{folder}/output"), read_checkpoint(str(output)))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "ip0,::1"),
        ({"no_proxy": "example.org,.local"}, "example.org,.local,ip0,::1"),
        ({"no_proxy": "example.org", "no_grpc_proxy": "other"}, "other,ip0,::1"),
    ],
)
def test_the_hosts_of_a_cluster_are_taken_off_the_proxy_besides_the_users(
    monkeypatch, given, expected
):
    jobs = {"master": ("IP0:1",), "worker": ("ip0:2",), "ps": ("[::1]:1",)}
    monkeypatch.setattr(os, "environ", dict(given))
    ps = Cluster(jobs, "ps", 0, has_evaluator=False, source="TF_CONFIG")
    main._set_environment(ps, in_graph=False)
    assert os.environ == {**given, "no_grpc_proxy": expected}
