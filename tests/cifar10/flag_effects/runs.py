"""Settings whose effect only a whole run shows: in its files and in what it prints.

The runs in `RUNS` are tiny, and each of them shows many settings. All runs after the first two work
in the folder of `plain`.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any, Callable

import tensorflow.compat.v1 as tf
from PIL import Image

from cifar10.config.flags import parse
from cifar10.config.train_config import TrainConfig
from tests.cifar10 import program
from tests.cifar10.forks import Forks

_TINY = (
    "--model=mlp --hidden-units=4 --train-steps=5 --train-batch-size=10 --optimizer=momentum "
    "--learning-rate=0.01 --schedule=constant --warmup-epochs=0 "
    "--num-towers=1 --num-inter-threads=1 --num-intra-threads=1"
)

# Name -> (arguments, working folder).
RUNS: Mapping[str, tuple[str, str]] = {
    "plain": (_TINY, "plain"),
    "changed": (
        f"{_TINY} --work-dir=../place --data-dir=records --output-dir=kept --log-dir=events "
        "--checkpoint-steps=2 --keep-checkpoints=3 --log-steps=2 --summary-steps=2 "
        "--verbose --log-device-placement --test-time-augmentation --recipe=tutorial "
        "--profile-steps=2:3",
        "changed",
    ),
    "short": (f"{_TINY} --max-minutes=1e-6 --output-dir=short", "plain"),
    "early": (
        f"{_TINY} --checkpoint-steps=1 --early-stopping-epochs=0.001 --init-checkpoint=output "
        "--output-dir=early",
        "plain",
    ),
    "enough": (
        f"{_TINY} --checkpoint-steps=1 --stop-at-accuracy=0.01 --output-dir=enough",
        "plain",
    ),
    "seeds": (f"{_TINY} --seeds=4 --output-dir=compared", "plain"),
    "evaluate": ("--mode=evaluate", "plain"),
    "evaluate the first": ("--mode=evaluate --checkpoint=output/model.ckpt-0", "plain"),
    "predict": ("--mode=predict one.png", "plain"),
    "predict two as JSON": ("--mode=predict one.png two.png --json", "plain"),
    "export": ("--mode=export", "plain"),
}
_SIZES = {"plain/data": 100, "place/records": 60}


@dataclasses.dataclass(frozen=True)
class Finished:
    """A run that has ended.

    Attributes:
      root: folder that holds the working folders of all runs.
      output: output folder of the run.
      printed: what the run printed to standard error, then to standard output.
    """

    root: pathlib.Path
    output: pathlib.Path
    printed: str

    @property
    def result(self) -> Any:
        """The content of the run's result.json."""
        return json.loads((self.output / "result.json").read_text())

    @property
    def history(self) -> Any:
        """The content of the run's history.json."""
        return json.loads((self.output / "history.json").read_text())


@dataclasses.dataclass(frozen=True)
class RunRow:
    """What a setting changes in whole runs.

    Attributes:
      setting: name of the setting in TrainConfig.
      probe: function that observes the effect in a run.
      seen: name of a run -> expected result of the probe. No two results may be equal, and no two
        of these runs may have the same value of the setting.
    """

    setting: str
    probe: Callable[[Finished], Any]
    seen: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.setting}-{self.probe.__name__}"


def config_of(name: str) -> TrainConfig:
    """Returns the configuration of a run."""
    return parse(RUNS[name][0].split())


def run_all(root: pathlib.Path, forks: Forks) -> dict[str, Finished]:
    """Executes all of `RUNS`, in folders of `root`; returns the finished runs by name."""
    for place, size in _SIZES.items():
        program.make_records(root / place, size)
    (root / "changed").mkdir()
    for number, name in enumerate(("one.png", "two.png")):
        Image.new("RGB", (32, 32), (number, 0, 0)).save(root / "plain" / name)
    finished = {}
    for name, (words, folder) in RUNS.items():
        done = forks.run(*words.split(), cwd=root / folder)
        assert done.returncode == 0, f"{name}\n{done.stdout}\n{done.stderr}"
        output = root / folder / config_of(name).output_place
        finished[name] = Finished(root, output, done.stderr + done.stdout)
    return finished


def training_images(run: Finished) -> int:
    """Returns the number of training images that the run found in its records."""
    return int(run.result["data"]["splits"]["train"]["records"])


def place_of_result(run: Finished) -> str:
    """Returns the path of result.json as the run prints it."""
    (line,) = (line for line in run.printed.splitlines() if line.startswith("result: "))
    return line.removeprefix("result: ")


def _places(run: Finished) -> list[pathlib.Path]:
    """Returns those of the output folder and its sibling `events` that have training events."""
    places = [run.output, run.output.parent / "events"]
    return [place for place in places if list(place.glob("train/events.out.tfevents.*"))]


def folders_with_events(run: Finished) -> list[str]:
    """Returns the names of the folders that have training's event files."""
    return [place.name for place in _places(run)]


def steps_of_loss(run: Finished) -> list[int]:
    """Returns the steps at which the event files have the loss."""
    return sorted(
        event.step
        for place in _places(run)
        for path in place.glob("train/events.out.tfevents.*")
        for event in tf.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "loss"
    )


def kept_checkpoints(run: Finished) -> list[int]:
    """Returns the steps of the checkpoints that are kept, without the best one."""
    paths = run.output.glob("model.ckpt-*.index")
    return sorted(int(path.stem.removeprefix("model.ckpt-")) for path in paths)


def validated_steps(run: Finished) -> list[int]:
    """Returns the steps that were validated."""
    return [row["step"] for row in run.history["validation"]]


def steps_of_progress(run: Finished) -> list[int]:
    """Returns the steps of the progress lines; the first step never has one."""
    lines = (line for line in run.printed.splitlines() if line.startswith("epoch "))
    return [int(line.partition("step ")[2].partition("/")[0]) for line in lines]


def ending(run: Finished) -> tuple[str, int]:
    """Returns how the run ended, and at which global step."""
    return run.result["status"], run.result["figures"]["global_step"]


def status(run: Finished) -> str:
    """Returns how the run ended."""
    return str(run.result["status"])


def start_in_result(run: Finished) -> Any:
    """Returns the checkpoint from whose weights the run started, as result.json has it."""
    start = run.result["init_checkpoint"]
    return start and start["path"]


def recipe_in_result(run: Finished) -> Any:
    """Returns the name of the recipe in result.json."""
    return run.result["recipe"]


def augmented_accuracy(run: Finished) -> bool:
    """Returns whether result.json has an accuracy with test-time augmentation."""
    return run.result["figures"]["eval_accuracy_augmented"] is not None


def says(text: str) -> Callable[[Finished], bool]:
    """Returns a probe that tells whether the run prints a text."""

    def probe(run: Finished) -> bool:
        return text in run.printed

    probe.__name__ = f"says {text}"
    return probe


def seeds_compared(run: Finished) -> list[int]:
    """Returns the seeds whose results were compared."""
    path = run.output / "seeds.json"
    return [row["seed"] for row in json.loads(path.read_text())["runs"]] if path.exists() else []


def profiled(run: Finished) -> str:
    """Returns which steps the table of ops is of, as it says."""
    path = run.output.parent / "events" / "profile.txt"
    return path.read_text().partition("op ")[2].partition(",")[0] if path.exists() else ""


def evaluated_step(run: Finished) -> str:
    """Returns the step of the checkpoint that was evaluated."""
    return run.printed.splitlines()[-1].partition(" at step ")[2]


def predicted_images(run: Finished) -> list[str]:
    """Returns the name of each line's image."""
    return [found for line in run.printed.splitlines() for found in re.findall(r"\w+\.png", line)]


def what_is_done(run: Finished) -> str:
    """Tells the modes apart by the last line of output."""
    last = run.printed.splitlines()[-1]
    return last.partition(" ")[0] + (" of training" if "training to step" in run.printed else "")


ROWS = [
    RunRow("data_dir", training_images, {"plain": 90, "changed": 54}),
    RunRow(
        "output_dir",
        place_of_result,
        {"plain": "output/result.json", "short": "short/result.json"},
    ),
    RunRow(
        "work_dir",
        place_of_result,
        {"plain": "output/result.json", "changed": "../place/kept/result.json"},
    ),
    RunRow("log_dir", folders_with_events, {"plain": ["output"], "changed": ["events"]}),
    RunRow("summary_steps", steps_of_loss, {"plain": [1, 2, 3, 4, 5], "changed": [1, 2, 4, 5]}),
    RunRow("checkpoint_steps", validated_steps, {"plain": [5], "changed": [2, 4, 5]}),
    RunRow("keep_checkpoints", kept_checkpoints, {"plain": [0, 5], "changed": [2, 4, 5]}),
    RunRow("log_steps", steps_of_progress, {"plain": [5], "changed": [3, 5]}),
    RunRow(
        "max_minutes", ending, {"plain": ("completed", 5), "short": ("stopped by --max-minutes", 1)}
    ),
    RunRow(
        "early_stopping_epochs",
        status,
        {"plain": "completed", "early": "stopped by --early-stopping-epochs"},
    ),
    RunRow(
        "stop_at_accuracy",
        status,
        {"plain": "completed", "enough": "stopped by --stop-at-accuracy"},
    ),
    RunRow(
        "init_checkpoint", start_in_result, {"plain": None, "early": "output/best/model.ckpt-5"}
    ),
    RunRow("seeds", seeds_compared, {"plain": [], "seeds": [4]}),
    RunRow("profile_steps", profiled, {"plain": "", "changed": "in steps 2 to 3"}),
    RunRow("recipe", recipe_in_result, {"plain": None, "changed": "tutorial"}),
    RunRow("test_time_augmentation", augmented_accuracy, {"plain": False, "changed": True}),
    RunRow("verbose", says("INFO:tensorflow:"), {"plain": False, "changed": True}),
    RunRow("log_device_placement", says("/device:CPU:0"), {"plain": False, "changed": True}),
    RunRow("checkpoint", evaluated_step, {"evaluate": "5", "evaluate the first": "0"}),
    RunRow(
        "images",
        predicted_images,
        {"predict": ["one.png"], "predict two as JSON": ["one.png", "two.png"]},
    ),
    RunRow("json", says('{"file": "one.png"'), {"predict": False, "predict two as JSON": True}),
    RunRow(
        "mode",
        what_is_done,
        {
            "plain": "export: of training",
            "evaluate": "eval",
            "predict": "one.png",
            "export": "export:",
        },
    ),
]
