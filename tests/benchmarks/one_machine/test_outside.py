"""The seconds of a run by part, from its files, and the table of two checkouts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cli import main
from benchmarks.one_machine import outside
from data_prep import cli


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """The output of a run of four steps that began at 100 s, with a validation after each two."""
    times = [("train", 1, 104), ("train", 2, 105), ("validation", 2, 107), ("train", 3, 108)]
    times += [("train", 4, 109), ("validation", 4, 111), ("eval", 4, 115)]
    rows = [{"split": split, "step": step, "wall_time": time} for split, step, time in times]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "export").mkdir()
    (tmp_path / "result.json").write_text("{}")
    os.utime(tmp_path / "export", (116, 116))
    os.utime(tmp_path / "result.json", (118, 118))
    return tmp_path


def test_a_run_is_divided_into_its_parts(output: Path) -> None:
    assert outside.seconds(output, steps=2, began=100.0, final=112.0, ended=118.5) == {
        "start": 4.0,
        "steps": 3.0,  # of which one, the third, is known by the others alone
        "validations": 5.0,
        "final evaluation": 3.0,
        "export": 1.0,
        "report": 2.0,
        "exit": 0.5,
        "outside": 15.5,
    }


def runs(*factors: float) -> list[dict[str, float]]:
    columns = (*outside.PARTS, "outside", "CPU")
    return [dict.fromkeys(columns, 2.0 * factor) for factor in factors]


def test_a_table_has_a_row_for_each_checkout_and_one_that_compares_them() -> None:
    _, _, ours, theirs, ratio = outside.as_lines({"new": runs(1, 2, 3), "old": runs(2, 4, 6)})
    assert ours.startswith("| new, s | 4.0 (2.0 to 6.0) | 4.0 (2.0 to 6.0) |")
    assert theirs.startswith("| old, s | 8.0 (4.0 to 12.0) |")
    assert ratio.startswith("| old / new | 2.00 (2.00 to 2.00) |")


def test_a_single_run_has_no_range() -> None:
    *_, row = outside.as_lines({"new": runs(1)})
    assert row == "| new, s |" + 9 * " 2.0 |"


def test_a_folder_without_the_program_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["outside", "--against", str(tmp_path)]) == 2
    line = f"--against {tmp_path} has no cifar10_main.py; name a checkout"
    assert capsys.readouterr().err == f"error: {line}\n"


@pytest.mark.slow
def test_a_real_run_is_measured(root: Path, tmp_path: Path) -> None:
    made = ["--source", "synthetic", "--synthetic-size", "100", "--out", str(tmp_path)]
    assert cli.main(made) == 0
    words = ["--model=mlp", "--train-batch-size=10", f"--data-dir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "outside", "--steps", "2", "--", *words],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    *_, header, _, row = done.stdout.splitlines()
    titles, cells = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in (header, row)
    )
    assert titles == ["", *outside.PARTS, "outside", "CPU"]
    figures = dict(zip(titles[1:], map(float, cells[1:])))
    assert min(figures.values()) >= 0
    parts = sum(secs for title, secs in figures.items() if title in outside.PARTS)
    assert abs(parts - figures["steps"] - figures["outside"]) < 0.5  # of rounding
