"""--seeds: one training after the other, each in a folder of its own, and a table of all."""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.run import seeds
from tests.cifar10 import program
from tests.cifar10.forks import Forks
from tests.documents import check_fields
from tests.shell import ROOT

pytestmark = pytest.mark.system

_OWN = """
import dataclasses, sys
from cifar10 import main, schedules
from cifar10.config.train_config import TrainConfig
from cifar10.settings import setting

@schedules.schedule("a constant")
def own(progress):
    return 1.0 + 0.0 * progress.share

@dataclasses.dataclass(frozen=True)
class Config(TrainConfig):
    purpose: str = setting("why", "none", group="job")

if __name__ == "__main__":
    sys.exit(main.main(config_type=Config))
"""
SMALL = ("--model=mlp", "--train-batch-size=16", "--train-steps=6", "--warmup-epochs=0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with records in its default place."""
    return program.make_records(tmp_path_factory.mktemp("seeds") / "data", 200).parent


@pytest.fixture(scope="module")
def compared(folder: pathlib.Path, forks: Forks) -> "subprocess.CompletedProcess[str]":
    """Two seeds, with test-time augmentation."""
    words = ("--seeds=5,3", "--test-time-augmentation", "--log-dir=logs", "--output-dir=compared")
    return forks.run(*SMALL, *words, cwd=folder)


def results(folder: pathlib.Path, *numbers: int) -> list[dict[str, float]]:
    paths = [folder / f"compared/seed-{number}/result.json" for number in numbers]
    return [json.loads(path.read_text())["figures"] for path in paths]


def test_each_seed_has_its_own_folder_and_seeds_json_the_mean_and_the_deviation(compared, folder):
    assert compared.returncode == 0, compared.stderr
    found = json.loads((folder / "compared/seeds.json").read_text())
    assert check_fields("docs/outputs.md", "seeds.json", found) == ([], [])
    one, other = results(folder, 5, 3)
    assert [row["seed"] for row in found["runs"]] == [5, 3]
    assert found["runs"][0] == {
        "seed": 5,
        "output_dir": "compared/seed-5",
        "status": "completed",
        "global_step": 6,
        "best_validation_accuracy": one["best_validation_accuracy"],
        "eval_accuracy": one["eval_accuracy"],
        "eval_accuracy_augmented": one["eval_accuracy_augmented"],
        "eval_loss": one["eval_loss"],
        "training_seconds": one["training_seconds"],
    }
    for name in ("eval_loss", "training_seconds"):
        mean = (one[name] + other[name]) / 2
        assert found["mean"][name] == pytest.approx(mean, rel=1e-4)
        # Of two numbers, the sample standard deviation is their distance over the root of 2.
        deviation = abs(one[name] - other[name]) / 2**0.5
        assert found["standard_deviation"][name] == pytest.approx(deviation, rel=1e-3, abs=1e-3)
    configuration = json.loads((folder / "compared/seed-3/result.json").read_text())[
        "configuration"
    ]
    assert (configuration["seed"], configuration["seeds"]) == (3, None)
    assert (folder / "logs/seed-3/metrics.jsonl").exists()


def test_the_table_is_printed_at_the_end(compared, folder):
    lines = compared.stdout.splitlines()
    assert lines[0] == "seed 5, 1 of 2: compared/seed-5"
    assert "seed 3, 2 of 2: compared/seed-3" in lines
    (first, _) = results(folder, 5, 3)
    assert lines[-6].split() == ["seed", "validation", "eval", "augmented", "loss", "seconds"]
    assert lines[-5].split()[:3] == [
        "5",
        f"{first['best_validation_accuracy']:.4f}",
        f"{first['eval_accuracy']:.4f}",
    ]
    assert [line.split()[0] for line in lines[-4:]] == ["3", "mean", "deviation", "seeds:"]
    assert lines[-1] == "seeds: compared/seeds.json"


def test_a_finished_seed_is_not_trained_again(compared, folder, forks):
    before = (folder / "compared/seed-5/result.json").read_bytes()
    words = ("--seeds=5", "--test-time-augmentation", "--log-dir=logs", "--output-dir=compared")
    again = forks.run(*SMALL, *words, cwd=folder)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[1].startswith("already trained to step 6: eval accuracy 0.")
    assert (folder / "compared/seed-5/result.json").read_bytes() == before
    found = json.loads((folder / "compared/seeds.json").read_text())
    assert [row["seed"] for row in found["runs"]] == [5]


@pytest.mark.parametrize(
    ("signum", "shown", "saves"),
    [(signal.SIGTERM, "\nepoch ", True), (signal.SIGINT, "seed 1, 1 of 2", False)],
    ids=["while it trains", "before it handles signals"],
)
def test_a_signal_ends_the_seed_at_hand_and_says_how_to_go_on(folder, forks, signum, shown, saves):
    words = ("--model=mlp", "--seeds=1,2", "--log-steps=1", f"--output-dir=stopped-{signum}")
    with forks.started(*words, cwd=folder) as run:
        run.wait_until(lambda one: shown in one.out)
        code, out, err = run.interrupt(signum)
    assert code == 128 + signum
    assert (f"\nsaved stopped-{signum}/seed-1/model.ckpt-" in out) == saves
    stopped, rest = err.splitlines()
    assert stopped == f"stopped by signal {signum:d}; run the same command to continue"
    assert rest.startswith(
        f"0 of 2 seeds are finished; seed 1 ended with exit code {128 + signum}; to go on: "
    )


def test_the_training_of_a_seed_saves_and_ends_if_its_parent_is_killed(folder, forks):
    words = ("--model=mlp", "--seeds=1,2", "--log-steps=1", "--output-dir=orphan")
    with forks.started(*words, cwd=folder) as run:
        run.wait_until(lambda one: "\nepoch " in one.out)
        run.kill()
        deadline = time.monotonic() + 60
        while "\nsaved " not in run.out and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "\nsaved orphan/seed-1/model.ckpt-" in run.out


@pytest.mark.parametrize(
    ("status", "minutes", "is_over"),
    [
        ("stopped by --max-minutes", 5.0, True),
        ("stopped by --max-minutes", 4.0, False),
        ("completed", 5.0, False),
        (None, None, False),
    ],
)
def test_a_seed_that_has_had_its_minutes_gets_no_more(tmp_path, status, minutes, is_over):
    config = TrainConfig(output_dir=str(tmp_path), max_minutes=5.0)
    if status:
        result = {"status": status, "configuration": {"max_minutes": minutes}}
        (tmp_path / "result.json").write_text(json.dumps(result))
    assert seeds.has_had_its_minutes(config) is is_over
    assert not seeds.has_had_its_minutes(TrainConfig(output_dir=str(tmp_path)))


def test_a_cluster_is_refused_with_a_way_out(tmp_path, forks):
    tf_config = """{
      "cluster": {"chief": ["ip0:2222"], "ps": ["ip0:2223"], "worker": ["ip1:2222"]},
      "task": {"type": "chief", "index": 0}
    }"""
    done = forks.run("--seeds=7,8", cwd=tmp_path, tf_config=tf_config)
    assert done.returncode == 2
    assert done.stderr == (
        "error: --seeds trains one process after the other, but this is chief/0 of a cluster; "
        "start the cluster once for each seed, with --seed 7 --output-dir output/seed-7\n"
    )


def test_a_script_that_registers_a_schedule_and_has_a_setting_trains_each_seed(folder):
    script = folder / "own.py"
    script.write_text(_OWN)
    words = ("--seeds=7", "--schedule=own", "--purpose=x", "--output-dir=own")
    command = [sys.executable, script, *SMALL, *words]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    configuration = json.loads((folder / "own/seed-7/result.json").read_text())["configuration"]
    assert (configuration["schedule"], configuration["purpose"]) == ("own", "x")


def test_one_seed_has_no_deviation_and_a_figure_that_is_missing_no_mean():
    row = {
        "seed": 1,
        "best_validation_accuracy": None,
        "eval_accuracy": 0.9,
        "eval_accuracy_augmented": None,
        "eval_loss": 0.5,
        "training_seconds": 61.25,
    }
    mean = seeds.statistic(statistics.fmean, [row])
    deviation = seeds.statistic(statistics.stdev, [row], 2)
    assert (mean["eval_accuracy"], deviation["eval_accuracy"]) == (0.9, None)
    assert mean["best_validation_accuracy"] is None
    assert seeds.table([row], mean, deviation) == (
        "seed              eval        loss     seconds\n"
        "1               0.9000      0.5000        61.2\n"
        "mean            0.9000      0.5000        61.2\n"
        "deviation            -           -           -"
    )
