"""The Python API, as a notebook uses it: plain objects and exceptions, in one process."""

import json
import pathlib

import pytest

from cifar10.api import Prediction
from tests.cifar10.forks import Forks

BEFORE = """
import json, os, sys
import numpy as np
from PIL import Image

os.chdir(sys.argv[1])
argv = list(sys.argv)
large = Image.new("RGB", (80, 60), "white")
large.save("cat.png")
"""
AFTER = """
from cifar10.errors import UserError

assert sys.argv == argv
task = dict(ps_hosts="a:1", worker_hosts="b:1,c:1", job_name="worker", task_index=0)
white = np.full((32, 32, 3), 255, np.uint8)

def refused(call, error=UserError):
    try:
        call()
    except error as refusal:
        return str(refusal)

def as_a_master():
    cluster, task = {"master": ["a:1"], "ps": ["b:1"]}, {"type": "master", "index": 0}
    os.environ.setdefault("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    return [refused(cifar10.train), refused(cifar10.train)]

print(json.dumps({
    "trained": vars(result),
    "evaluated": metrics,
    "class_names": predictor.class_names,
    "predicted": predictor.predict(["cat.png", white, large]),
    "nothing": predictor.predict([]),
    "refused": [
        refused(lambda: cifar10.train(lr=3)),
        refused(lambda: cifar10.train(config={"train_batch_size": "many"})),
        refused(lambda: cifar10.train(profile_steps=(3, 2))),
        refused(lambda: cifar10.train(dry_run=True)),
        refused(lambda: cifar10.Predictor("resnet8", checkpoint="none")),
        refused(lambda: predictor.predict(["none.png"])),
        refused(lambda: predictor.predict([white[..., 0]]), ValueError),
        refused(lambda: cifar10.train(**task)),
        *as_a_master(),
    ],
}))
"""


def test_the_api_trains_evaluates_and_predicts_with_the_names_of_the_flags(
    root: pathlib.Path, prepared_data: pathlib.Path, tmp_path: pathlib.Path, forks: Forks
) -> None:
    (tmp_path / "data").symlink_to(prepared_data)
    page = (root / "docs/python.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    code = code.replace("num_layers=8", "model='mlp', train_batch_size=20, log_dir=None")
    done = forks.run_code(BEFORE + code + AFTER, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout.splitlines()[-1])
    result = json.loads((tmp_path / "resnet8/result.json").read_text())
    trained = found["trained"]
    assert trained["metrics"] == result["figures"]
    assert trained["metrics"]["global_step"] == 9
    assert trained["history"] == result["history"]
    assert [row["step"] for row in trained["history"]["validation"]] == [5, 9]
    assert trained["settings"]["train_batch_size"] == 20
    assert (trained["status"], trained["output_dir"]) == ("completed", "resnet8")
    assert result["command"][:2] == ["python", "cifar10_main.py"]
    assert "--output-dir=resnet8" in result["command"]

    evaluated = found["evaluated"]
    assert round(evaluated["accuracy"], 5) == trained["metrics"]["eval_accuracy"]
    assert evaluated["global_step"] == trained["metrics"]["best_validation_step"]
    assert list(evaluated["class_accuracy"]) == found["class_names"] == trained["class_names"]

    of_file, of_array, of_large = map(Prediction._make, found["predicted"])
    for found_in in (of_array, of_large):  # All are white.
        assert found_in.probabilities == pytest.approx(of_file.probabilities, rel=1e-4)
    assert list(of_file.probabilities) == found["class_names"]
    assert of_file.probability == max(of_file.probabilities.values())
    assert of_file.probabilities[of_file.class_name] == of_file.probability
    assert found["nothing"] == []

    expected = (
        "there is no flag --lr=3; did you mean --learning-rate?",
        "--config: train_batch_size must be a whole number, got 'many'",
        "--profile-steps must be ",
        "dry_run is for cifar10_main.py --dry-run; ",
        "--checkpoint none does not exist; ",
        "none.png cannot be read: ",
        "an image must be a path, or uint8 [height, width, 3], got uint8 [32, 32]",
        "cifar10.train trains alone, but TF_CONFIG or the flags make this process worker/0",
        *["cifar10.train trains alone, but TF_CONFIG or the flags make this process master/0"] * 2,
    )
    assert len(found["refused"]) == len(expected)
    for message, beginning in zip(found["refused"], expected):
        assert str(message).startswith(beginning), message
