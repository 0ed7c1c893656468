"""The report's page and its pictures."""

import base64
import io
import json
import math
import re
import shlex
import sys
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cifar10.report import Mistake, draw_curves, render_report
from cifar10.report import __main__ as compare
from cifar10.schema import CLASS_NAMES
from tests import shell

STEPS_PER_EPOCH = 351.5625


def sample_history() -> dict[str, Any]:
    """Returns a history of 30 epochs with 12 training rows and one validation row each."""
    train = [
        {
            "step": round(record * STEPS_PER_EPOCH / 12),
            "epoch": record / 12,
            "seconds": 6.3 * record,
            "loss": 0.12 + 2.1 * math.exp(-record / 72),
            "accuracy": 0.96 - 0.75 * math.exp(-record / 72),
            "learning_rate": 0.1 if record < 180 else 0.01,
            "images_per_sec": 595.0,
        }
        for record in range(1, 361)
    ]
    measured = ("step", "epoch", "seconds", "loss", "accuracy")
    return {"train": train, "validation": [{k: row[k] for k in measured} for row in train[11::12]]}


def sample_result() -> dict[str, Any]:
    """Returns the result.json of a completed run of ResNet-20 on CIFAR-10."""
    return {
        "status": "completed",
        "model": "ResNet-20 v1",
        "command": ["python", "cifar10_main.py", "--train-batch-size=128", "--data-dir", "my data"],
        "finished_at": "2025-11-07T14:03:21+00:00",
        "figures": {
            "eval_accuracy": 0.9125,
            "eval_accuracy_augmented": None,
            "eval_loss": 0.3127,
            "eval_examples": 10_000,
            "best_validation_accuracy": 0.9188,
            "best_validation_step": 9_844,
            "global_step": 10_547,
            "epochs": 30.0,
            "examples_seen": 1_350_016,
            "training_seconds": 2_268.4,
            "wall_seconds": 2_391.0,
            "images_per_sec": 595.1,
            "num_parameters": 269_722,
        },
        "configuration": {"model": "resnet", "num_layers": 20, "max_minutes": None},
        "versions": {"python": "3.11.7", "tensorflow": "2.15.1", "numpy": "1.26.4"},
        "hardware": {"cpu": "AMD EPYC 9B45", "cores": 2, "memory_gib": 7.8, "gpus": []},
        "data": sample_manifest(),
        "class_names": list(CLASS_NAMES),
        "confusion_matrix": np.diag([1_000] * 10).tolist(),
        "history": sample_history(),
    }


def sample_manifest() -> dict[str, Any]:
    """Returns the manifest of CIFAR-10 with one file per split."""
    splits = {}
    for split, records in (("train", 45_000), ("validation", 5_000), ("eval", 10_000)):
        file = {"name": f"{split}.tfrecords", "records": records, "bytes": records * 3_123}
        splits[split] = {"records": records, "files": [{**file, "sha256": "ab" * 32}]}
    return {
        "format_version": 1,
        "source": {"kind": "python", "name": "CIFAR-10", "fingerprint": "c0ffee" * 10 + "beef"},
        "class_names": list(CLASS_NAMES),
        "seed": 0,
        "splits": splits,
        "channel_mean": [125.3, 122.95, 113.87],
        "channel_deviation": [62.99, 62.09, 66.7],
    }


def sample_mistakes(count: int = 36) -> list[Mistake]:
    """Returns mistakes whose images are colour noise."""
    random = np.random.default_rng(2)
    return [
        Mistake(
            index=17 * number,
            image=random.integers(0, 256, (32, 32, 3), dtype=np.uint8),
            label=number % 10,
            predicted=(number + 3) % 10,
            probability=0.5 + number / 100,
            label_probability=0.3 - number / 200,
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def page() -> str:
    return render_report(sample_result(), sample_mistakes(2))


@pytest.mark.parametrize(
    "text",
    [
        "91.25\u202f%",
        "10,000 evaluation images",
        "95 % confidence interval: 90.7 to 91.8\u202f%",
        "91.88\u202f%",
        "at step 9,844",
        "37m48s",
        "269,722",
        "python cifar10_main.py --train-batch-size=128 --data-dir &#39;my data&#39;",
        '<th scope="row">max_minutes</th><td>not set</td>',
        "45,000 images, 140.5 MB",
        'alt="Record 17: automobile, taken for deer"',
        "<b>deer</b> 51.0\u202f%<br>\n    is automobile 29.5\u202f%",
    ],
)
def test_page_says(page, text):
    assert text in page


def test_page_names_no_outside_address_and_forbids_any_request(page):
    assert not re.search(r"(?:src|href|srcset)=\"(?!data:|#)", page)
    assert not re.search(r"url\(|@import|<script", page)
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in page


def test_names_from_outside_are_escaped():
    attack = "<script>alert(1)</script>"
    data = sample_manifest()
    data["source"]["name"] = attack
    changed: dict[str, Any] = {
        "model": attack,
        "class_names": [attack, *CLASS_NAMES[1:]],
        "data": data,
        "command": [attack],
        "configuration": {attack: attack},
        "versions": {attack: attack},
        "hardware": {"cpu": attack, "cores": 2, "memory_gib": 7.8, "gpus": [attack]},
        "status": attack,
    }
    page = render_report({**sample_result(), **changed}, sample_mistakes(2))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 10


def pixels(png: bytes) -> Any:
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image.convert("RGB"))


def count(image: Any, colour: tuple[int, int, int]) -> int:
    return int((image == colour).all(axis=2).sum())


def test_curves_are_drawn_in_their_charts_with_gaps_for_what_is_not_finite():
    blue, orange = (37, 99, 235), (217, 102, 11)
    charts = list(map(pixels, draw_curves({"": sample_history()}).values()))
    seen = [[count(chart, colour) > 200 for colour in (blue, orange)] for chart in charts]
    assert seen == [[True, True], [True, True], [True, False], [True, False]]
    row = {"epoch": 1.0, "loss": math.inf}
    charts = draw_curves({"": {"train": [row, {"epoch": 2.0}], "validation": []}})
    assert count(pixels(charts["Loss"]), blue) == 0


def test_confusion_matrix_has_the_root_of_each_share_as_colour():
    matrix = np.diag([0] + [7_000] * 9)
    matrix[9, 0], matrix[9, 9] = 1, 3
    page = render_report({**sample_result(), "confusion_matrix": matrix.tolist()}, [])
    rows = re.findall(r"<tr>(.*?)</tr>", page.split('class="confusion"')[1], re.DOTALL)
    cells = [re.findall(r'<td style="background: (.*?)">(.*?)</td>', row) for row in rows[1:11]]
    white, full = ("rgba(37, 99, 235, 0.000)", "·"), "rgba(37, 99, 235, 1.000); color: #fff"
    assert cells[0] == [white] * 10
    assert cells[1] == [white, (full, "7,000"), *[white] * 8]
    assert cells[9][0] == ("rgba(37, 99, 235, 0.500)", "1")
    assert f"{CLASS_NAMES[1]} 100.0" in rows[2]
    assert f"{CLASS_NAMES[9]} 75.0" in rows[10]


def test_a_matrix_of_many_classes_is_a_picture_and_its_most_frequent_mistakes():
    matrix = 10 * np.eye(100, dtype=int)
    matrix[7, 3], matrix[98, 99], matrix[99, 98] = 5, 6, 1
    names = [f"class {label}" for label in range(100)]
    changed = {"confusion_matrix": matrix.tolist(), "class_names": names}
    page = render_report({**sample_result(), **changed}, [])
    encoded = re.findall(r'class="heat" src="data:image/png;base64,(.*?)"', page)[0]
    picture = pixels(base64.b64decode(encoded))
    assert picture.shape == (100, 100, 3)
    assert picture[5, 5].tolist() == [37, 99, 235]
    assert picture[7, 3].tolist() == [int(255 + (5 / 15) ** 0.5 * c) for c in (-218, -156, -20)]
    assert picture[3, 7].tolist() == [255, 255, 255]
    found = re.findall(r"<td>class (\d+) taken for <b>class (\d+)</b></td><td>(\d+)</td>", page)
    assert found == [("98", "99", "6"), ("7", "3", "5"), ("99", "98", "1")]
    assert "class 98 62.5" in page


def test_runs_are_compared_on_one_page_with_the_settings_that_differ(tmp_path, capsys):
    result = sample_result()
    for name, optimizer in (("a", "momentum"), ("b", "<muon>")):
        configuration = {**result["configuration"], "optimizer": optimizer, "output_dir": name}
        (tmp_path / name).mkdir()
        text = json.dumps({**result, "configuration": configuration})
        (tmp_path / name / "result.json").write_text(text)
    folders, page = [str(tmp_path / name) for name in "ab"], tmp_path / "page.html"
    assert compare.main([*folders, "--out", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    results, differing = page.read_text().split("Settings that differ")
    assert results.count("<img") == 4
    assert results.count("91.25\u202f%") == 2
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td><td>(.*?)</td></tr>', differing)
    assert rows == [("optimizer", "momentum", "&lt;muon&gt;")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "/result.json: No such file or directory; name output folders of trainings "),
        ("{", "/result.json is damaged (JSONDecodeError: "),
        ("{}", "/result.json is damaged (KeyError: 'model'); "),
    ],
)
def test_a_folder_without_a_result_is_one_line(tmp_path, capsys, content, message):
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    assert compare.main([str(tmp_path), "--out", str(tmp_path / "page.html")]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"error: {tmp_path}{message}")
    assert line.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_a_picture_that_cannot_be_drawn_costs_one_line(monkeypatch, capsys):
    def fail(runs: Any) -> dict[str, bytes]:
        raise RuntimeError("no fonts\nhere")

    monkeypatch.setattr("cifar10.report.draw_curves", fail)
    page = render_report(sample_result(), [])
    assert capsys.readouterr().err == "the report has no curves: RuntimeError: no fonts here\n"
    assert "<img" not in page
    assert "91.25\u202f%" in page


WITHOUT_A_HOME = """
import pwd
pwd.getpwuid = {}.__getitem__  # It knows nobody.
from cifar10 import main
from cifar10.config.train_config import TrainConfig
with main.tensorflow_loaded(TrainConfig()):
    from cifar10.report import draw_curves
    draw_curves({"": {"train": [], "validation": []}})
"""


def test_a_user_without_a_home_gets_pictures_and_nothing_is_left(root, tmp_path):
    (tmp_path / "temporary").mkdir()
    variables = ("PATH=/usr/bin:/bin", f"PYTHONPATH={root}", f"TMPDIR={tmp_path}/temporary")
    command = shlex.join(["env", "-i", *variables, sys.executable, "-c", WITHOUT_A_HOME])
    assert shell.run(command, tmp_path).stderr == ""
    assert list(tmp_path.rglob("*")) == [tmp_path / "temporary"]
