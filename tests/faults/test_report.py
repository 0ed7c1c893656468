"""The table of the matrix."""

import json
from pathlib import Path

from tests.faults.experiment import Result
from tests.faults.report import as_markdown, line_of, read, write

PASSED = Result("sigkill/ps/start/sync", "0, by itself", [], 0, 30.0, 20.0)
FAILED = Result("oom/ps/start/sync", "", ["the job hangs", "more"], 200, 31.5, 20.0)


def test_a_row_has_the_cell_the_outcome_and_what_is_lost() -> None:
    assert as_markdown([PASSED]) == (
        "| fault | task | time | replication | outcome | steps lost | seconds lost |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| sigkill | ps | start | sync | 0, by itself | 0 | 10.0 |\n"
        "\n1 cells, 0 failed.\n"
    )


def test_a_cell_that_failed_says_all_that_is_wrong() -> None:
    text = as_markdown([PASSED, FAILED])
    assert "| oom | ps | start | sync | FAILED: the job hangs | 200 | 11.5 |" in text
    assert "2 cells, 1 failed.\n\n`oom/ps/start/sync`:\n- the job hangs\n- more\n" in text


def test_a_cell_whose_job_was_not_broken_is_named_since_it_shows_nothing() -> None:
    idle = Result("oom/worker/start/sync", "not broken: it took no memory", [], 0, 30.0, 20.0)
    text = as_markdown([PASSED, idle])
    assert "\n2 cells, 0 failed. 1 show nothing: oom/worker/start/sync.\n" in text


def test_a_cell_that_was_compared_with_no_other_job_has_no_seconds_lost() -> None:
    alone = Result("sigkill/ps/start/sync", "0, by itself", [], 0, 30.0)
    assert "| 0, by itself | 0 |  |\n" in as_markdown([alone])
    assert alone.as_json()["secs_lost"] is None


def test_a_line_of_the_terminal_begins_with_the_cells_name() -> None:
    assert line_of(PASSED).startswith("sigkill/ps/start/sync ")


def test_the_json_has_every_figure(tmp_path: Path) -> None:
    write([FAILED], tmp_path / "new")
    assert json.loads((tmp_path / "new" / "matrix.json").read_text()) == [
        {
            "cell": "oom/ps/start/sync",
            "outcome": "",
            "wrong": ["the job hangs", "more"],
            "steps_lost": 200,
            "secs": 31.5,
            "undisturbed_secs": 20.0,
            "missed": False,
            "secs_lost": 11.5,
        }
    ]


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    write([PASSED, FAILED], tmp_path)
    assert read(tmp_path) == [PASSED, FAILED]
    assert read(tmp_path / "missing") == []
