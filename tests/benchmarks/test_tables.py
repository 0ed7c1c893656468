import json
from pathlib import Path

import pytest

from benchmarks import tables
from benchmarks.errors import BenchmarkError

RESULTS = {
    "what": "speed",
    "command": None,
    "hardware": "2 cores of a CPU",
    "versions": None,
    "data": None,
    "n": 3,
    "columns": [["way", "{way}"]],
    "rows": [{"way": "ours"}],
}
BEFORE = "Text.\n\n<!-- table: speed -->\nold\n<!-- end -->\n\nMore.\n"
AFTER = "Text.\n\n<!-- table: speed -->\n| way |\n|---|\n| ours |\n<!-- end -->\n\nMore.\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One document with one table that is out of date."""
    for folder in ("docs", "benchmarks/results"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "README.md").write_text(BEFORE)
    (tmp_path / "benchmarks" / "README.md").write_text("No table.\n")
    (tmp_path / "benchmarks" / "results" / "speed.json").write_text(json.dumps(RESULTS))
    return tmp_path


def test_the_documents_tables_are_those_of_the_results(root: Path) -> None:
    assert [path.name for path in tables.renewed(root)] == [], "run python -m benchmarks tables"


def test_every_result_is_shown_by_a_document(root: Path) -> None:
    shown = {name for path in tables.documents(root) for name in tables.names(path.read_text())}
    kept = {path.stem for path in (root / "benchmarks" / "results").glob("*.json")}
    assert kept == shown - set(tables.CURVES)
    assert len(kept) >= 10


def test_a_table_is_written_between_its_markers(repository: Path) -> None:
    assert tables.renewed(repository) == {repository / "README.md": AFTER}
    (repository / "README.md").write_text(AFTER)
    assert tables.renewed(repository) == {}


def test_check_says_what_is_out_of_date_and_writes_nothing(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "ROOT", repository)
    assert tables.main(["--check"]) == 1
    assert "README.md is out of date: python -m benchmarks tables" in capsys.readouterr().out
    assert (repository / "README.md").read_text() == BEFORE
    assert tables.main([]) == 0
    assert (repository / "README.md").read_text() == AFTER
    assert tables.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- table: speed -->\nno end\n", "must be a line that is followed by"),
        ("<!-- end -->\n", "must be a line that is followed by"),
        ("<!-- table: other -->\n<!-- end -->\n", "there are no results .*other.json"),
    ],
)
def test_a_marker_that_leads_nowhere_is_refused(repository: Path, text: str, message: str) -> None:
    (repository / "docs" / "page.md").write_text(text)
    with pytest.raises(BenchmarkError, match=f"docs/page.md: .*{message}"):
        tables.renewed(repository)


@pytest.mark.parametrize("missing", ["hardware", "versions", "data", "n", "command", "rows"])
def test_results_say_what_they_were_measured_on(repository: Path, missing: str) -> None:
    left = {name: value for name, value in RESULTS.items() if name != missing}
    path = repository / "benchmarks" / "results" / "speed.json"
    path.write_text(json.dumps(left))
    with pytest.raises(BenchmarkError, match=f"must have rows, and exactly .*{missing}"):
        tables.read_results(path)
