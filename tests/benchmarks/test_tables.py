import json
from pathlib import Path

import pytest

from benchmarks import tables
from benchmarks.arguments import BenchmarkError

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
    assert kept == shown
    assert len(kept) >= 10


def test_a_table_is_written_between_its_markers(repository: Path) -> None:
    assert tables.renewed(repository) == {repository / "README.md": AFTER}
    (repository / "README.md").write_text(AFTER)
    assert tables.renewed(repository) == {}


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


def test_results_say_what_they_were_measured_on(repository: Path) -> None:
    left = {name: value for name, value in RESULTS.items() if name != "hardware"}
    path = repository / "benchmarks" / "results" / "speed.json"
    path.write_text(json.dumps(left))
    with pytest.raises(BenchmarkError, match="must have rows, and exactly .*hardware"):
        tables.read_results(path)
