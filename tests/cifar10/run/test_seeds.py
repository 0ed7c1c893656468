"""--seeds: one training after the other, each in a folder of its own, and a table of all."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from cifar10.errors import Stopped
from cifar10.host.signals import StopRequest
from cifar10.run import seeds
from tests.cifar10 import program
from tests.cifar10.forks import Forks
from tests.documents import check_fields

pytestmark = pytest.mark.system

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


def test_a_signal_that_is_ignored_is_ignored_by_the_training_of_a_seed_too():
    def ignores() -> int:
        StopRequest().install()
        return 42 if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else 0

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a script
    try:
        with seeds._Child() as child:
            assert child.run(ignores) == 42
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def fork_and_then(monkeypatch, signum: int, ready: Callable[[int], object]) -> None:
    """Makes a fork's parent get a signal before it has the result of `fork`."""
    fork = os.fork

    def fork_and_get_a_signal() -> int:
        pid = fork()
        if pid:
            ready(pid)
            os.kill(os.getpid(), signum)
        return pid

    monkeypatch.setattr(os, "fork", fork_and_get_a_signal)


def test_a_signal_that_comes_while_the_fork_is_made_reaches_it(monkeypatch):
    reading, writing = os.pipe()

    def work() -> int:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.write(writing, b".")
        time.sleep(60)
        return 0

    fork_and_then(monkeypatch, signal.SIGTERM, lambda pid: os.read(reading, 1))
    with seeds._Child() as child:
        assert child.run(work) == -signal.SIGTERM


_FORKS = """
import os, signal, time
from cifar10.errors import Stopped
from cifar10.run import seeds

fork = os.fork

def fork_and_get_a_signal():
    pid = fork()
    if pid:
        os.kill(os.getpid(), signal.SIGTERM)
    return pid

os.fork = fork_and_get_a_signal
with seeds._Child() as child:
    for _ in range(20):
        try:
            print(child.run(lambda: time.sleep(60) or 0))
        except Stopped:  # In the fork.
            os._exit(143)
"""


def test_a_signal_that_reaches_a_fork_at_its_beginning_ends_it(root):
    done = subprocess.run(
        [sys.executable, "-c", _FORKS], cwd=root, capture_output=True, text=True, timeout=50
    )
    assert (done.stdout, done.stderr) == ("143\n" * 20, "")


_ORPHAN = """
import os, pathlib, signal, sys, time
from cifar10.run import seeds

def end(signum, frame):
    pathlib.Path(sys.argv[1]).write_text(f"signal {signum}")
    os._exit(0)

def work():
    signal.signal(signal.SIGTERM, end)
    print(os.getpid(), flush=True)
    time.sleep(60)
    return 0

with seeds._Child() as child:
    child.run(work)
"""


def test_the_training_of_a_seed_is_told_to_end_if_its_parent_is_killed(root, tmp_path):
    note = tmp_path / "note"
    with subprocess.Popen(
        [sys.executable, "-c", _ORPHAN, str(note)], cwd=root, stdout=subprocess.PIPE, text=True
    ) as parent:
        fork = int(parent.stdout.readline())
        parent.kill()
        # The fork holds the other end of the pipe until it has ended.
        assert parent.stdout.read() == ""
    assert note.read_text() == "signal 15", f"process {fork} goes on"


def test_after_a_signal_that_came_too_late_for_a_training_no_other_begins(monkeypatch):
    def ended(pid: int) -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    fork_and_then(monkeypatch, signal.SIGTERM, ended)
    with seeds._Child() as child, pytest.raises(Stopped):
        child.run(lambda: 0)


def test_a_signal_ends_the_training_of_a_seed_and_says_how_to_go_on(folder, forks):
    words = ("--model=mlp", "--seeds=1,2", "--output-dir=stopped", "--train-batch-size=16")
    with forks.started(*words, "--log-steps=1", "--checkpoint-steps=100000", cwd=folder) as all_:
        all_.wait_until(lambda one: "\nepoch " in one.out)
        code, out, err = all_.interrupt(signal.SIGTERM)
    assert code == 143
    first, second = err.splitlines()
    assert first == "stopped by signal 15; run the same command to continue"
    assert second.startswith(
        "0 of 2 seeds are finished; seed 1 ended with exit code 143; to go on: python "
    )
    assert second.endswith(
        "cifar10_main.py --model=mlp --seeds=1,2 --output-dir=stopped --train-batch-size=16 "
        "--log-steps=1 --checkpoint-steps=100000"
    )
    assert "seed 2" not in out
    # The seed has a checkpoint of the step at which it was stopped.
    assert len(list((folder / "stopped/seed-1").glob("model.ckpt-*.index"))) == 2


@pytest.mark.parametrize(
    ("program_path", "command"),
    [
        ("/opt/bin/cifar10-train", "cifar10-train --seeds=1,2"),
        ("/src/cifar10/__main__.py", "python -m cifar10 --seeds=1,2"),
    ],
)
def test_the_command_that_goes_on_is_one_that_starts(monkeypatch, capsys, program_path, command):
    monkeypatch.setattr(sys, "argv", [program_path, "--seeds=1,2"])
    assert seeds._unfinished("0 of 2 seeds are", 1, -9) == 137
    assert capsys.readouterr().err == (
        f"0 of 2 seeds are finished; seed 1 ended with signal 9; to go on: {command}\n"
    )


def test_a_mistake_ends_all_with_its_exit_code(folder, forks):
    done = forks.run("--seeds=1,2", "--data-dir=nowhere", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("error: no records in nowhere")
    assert done.stdout == "seed 1, 1 of 2: output/seed-1\n"


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


def test_one_seed_has_no_deviation_and_a_figure_that_is_missing_no_mean():
    row = {
        "seed": 1,
        "best_validation_accuracy": None,
        "eval_accuracy": 0.9,
        "eval_accuracy_augmented": None,
        "eval_loss": 0.5,
        "training_seconds": 61.25,
    }
    mean, deviation = seeds.statistics_of([row])
    assert (mean["eval_accuracy"], deviation["eval_accuracy"]) == (0.9, None)
    assert mean["best_validation_accuracy"] is None
    assert seeds.table([row], mean, deviation) == (
        "seed              eval        loss     seconds\n"
        "1               0.9000      0.5000        61.2\n"
        "mean            0.9000      0.5000        61.2\n"
        "deviation            -           -           -"
    )
