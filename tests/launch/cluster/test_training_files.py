"""Files of settings in the training's arguments: read here, passed as JSON, and understood."""

import json
from pathlib import Path

import pytest

from launch.cluster.host_list import from_hosts
from launch.cluster.tasks import make_job
from launch.cluster.training_files import with_settings
from launch.errors import LaunchError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_becomes_its_settings_as_text(folder: Path) -> None:
    (folder / "a.yaml").write_text("lr: 2e-4\nbatch_norm: off\nlog_dir: ~\n", encoding="utf-8")
    expected = '--config={"lr": "2e-4", "batch_norm": "off", "log_dir": null}'
    assert with_settings(["--config", "a.yaml", "--seed=1"]) == [expected, "--seed=1"]
    assert with_settings(["--config=a.yaml"]) == [expected]
    assert with_settings([expected]) == [expected]


@pytest.mark.parametrize("words", [["--recipe=mine.json"], ["--recipe", "fast"], ["--config"]])
def test_a_recipe_is_a_name_and_is_passed_through(folder: Path, words: list[str]) -> None:
    (folder / "mine.json").write_text("{}", encoding="utf-8")
    assert with_settings(words) == words


@pytest.mark.parametrize("name", ["result.json", "result.yaml"])
def test_of_a_result_only_its_settings_are_passed(folder: Path, name: str) -> None:
    content = {"configuration": {"data_dir": "d"}, "chosen": ["kernels"], "history": {"train": []}}
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    expected = '--config={"configuration": {"data_dir": "d"}, "chosen": ["kernels"]}'
    assert with_settings(["--config", name]) == [expected]
    assert make_job(from_hosts("a"), (expected,)).folder("data") == "d"


def test_words_after_two_dashes_are_left_alone() -> None:
    words = ["--mode=predict", "--", "--config", "a.yaml"]
    assert with_settings(words) == words


@pytest.mark.parametrize(
    ("arguments", "data", "output"),
    [
        (['--config={"data_dir": "c"}', "--data_dir", "f", "--job-dir=j"], "f", "j"),
        (['--config={"data_dir": null}', "--config={"], "data", "output"),
        (['--config={"work-dir": "w", "data_dir": "c"}', "--job-dir=/o"], "w/c", "/o"),
        (["--work-dir", "w", "--data-dir=gs://bucket/records"], "gs://bucket/records", "w/output"),
    ],
)
def test_the_folders_are_those_of_flags_then_config(
    arguments: list[str], data: str, output: str
) -> None:
    job = make_job(from_hosts("a"), arguments)
    assert (job.folder("data"), job.folder("output")) == (data, output)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.yaml", None, "b.yaml: No such file or directory; --config names a file of settings"),
        ("a.json", '{"seed": 1, "seed": 2}', "a.json:1: seed is given twice in the file; keep one"),
        ("a.json", "[1]", "a.json:1: the file must be a mapping (`key: value` lines)"),
        pytest.param(
            "a.json",
            '{"a":' * 100_000,
            "a.json: nested too deeply to be read",
            id="nested",
        ),
    ],
)
def test_a_mistake_in_a_file_is_one_line(
    folder: Path, name: str, content: str, message: str
) -> None:
    if content is not None:
        (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(LaunchError) as refusal:
        with_settings(["--config", name])
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)
