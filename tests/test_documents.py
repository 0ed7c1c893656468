"""The pages in docs/ quote the messages in the code as they are."""

from pathlib import Path

import pytest

from tests import documents

SEEN = "the line you see"
NO_LINE = "(no error)"
PAGES = ("docs/troubleshooting.md", "docs/data.md")


@pytest.fixture(scope="module")
def said(root: Path) -> list[str]:
    """The strings in the code of all three packages."""
    return [
        text
        for package in ("cifar10", "launch", "data_prep")
        for text in documents.messages(root / package)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_line_that_a_page_quotes_is_in_the_code(
    root: Path, said: list[str], page: str
) -> None:
    rows = documents.rows((root / page).read_text("utf-8"), SEEN)
    quotes = {row["symptom"]: documents.code_spans(row[SEEN]) for row in rows}
    assert len(quotes) == len(rows) >= 10
    without = [row["symptom"] for row in rows if row[SEEN].startswith(NO_LINE)]
    assert [symptom for symptom, lines in quotes.items() if not lines] == without
    # A shorter quote would be part of too many strings.
    short = [q for lines in quotes.values() for q in lines if len(q.replace("...", "")) < 10]
    assert short == []
    unsaid = [q for lines in quotes.values() for q in lines if not documents.is_said(q, said)]
    assert unsaid == []


def test_a_line_that_no_code_says_is_found() -> None:
    cell = "``no `data` in ... \\| at all``"
    page = f"| symptom | the line you see |\n|---|---|\n| It ends. | {cell} |\n"
    (row,) = documents.rows(page, SEEN)
    (quote,) = documents.code_spans(row[SEEN])
    assert quote == "no `data` in ... | at all"
    assert documents.is_said(quote, ["error: no `data` in ... | at all; make some"])
    assert not documents.is_said(quote, ["no `data` in ...", "no data in ... | at all"])


def test_messages_have_holes_where_they_are_filled(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(
        '"""No message."""\n'
        'raise Error(f"{path}: no {split} records; " "make some")\n'
        'MISSING = "no {engine}; name one with {{engine: PATH}}"\n'
    )
    assert list(documents.messages(tmp_path)) == [
        "...: no ... records; make some",
        "no ...; name one with {engine: PATH}",
    ]


def test_a_section_ends_where_the_next_one_of_its_level_begins() -> None:
    page = "# A\n\n## B\n\nb\n\n### C\n\nc\n\n## D\n\nd\n"
    assert documents.section(page, "B") == "\n\nb\n\n### C\n\nc\n\n"
    assert documents.section(page, "C") == "\n\nc\n\n"
    assert documents.section(page, "D") == "\n\nd\n"


def test_fields_of_a_file_and_of_a_page_are_compared_both_ways() -> None:
    known = {"step": 1, "accuracy": 0.5, "name": "model.ckpt-1"}
    page, heading = "docs/outputs.md", "best.json"
    assert documents.check_fields(page, heading, known) == ([], [])
    assert documents.check_fields(page, heading, {**known, "loss": 1}) == (["loss"], [])
    del known["step"]
    assert documents.check_fields(page, heading, known) == ([], ["step"])


def test_a_field_in_capitals_stands_for_any_key() -> None:
    common = {
        "class_names": ["a", "b"],
        "init_checkpoint": None,
        "resize": None,
        "records": {"train": ["c"]},
        "seed": 1,
    }
    settings = {"settings": {"model": "mlp", "hidden_units": 100}, **common}
    assert documents.check_fields("docs/outputs.md", "model.json", settings) == ([], [])
    deeper = {"settings": {"model": {"name": "mlp"}}, **common}
    unnamed, unused = documents.check_fields("docs/outputs.md", "model.json", deeper)
    assert (unnamed, unused) == (["settings.model.name"], ["settings.SETTING"])


def test_files_of_a_folder_and_of_a_page_are_compared_both_ways(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("run.json", "status.json", "logs/ps-0.log", "slurm.out", "job.sbatch", "clean"):
        (tmp_path / name).touch()
    for name in ("events.jsonl", "logs/ps-0.times", "launcher.log", "launcher.times"):
        (tmp_path / name).touch()
    page, heading = "docs/outputs.md", "The launcher's run folder"
    assert documents.check_files(page, heading, tmp_path) == ([], [])
    (tmp_path / "clean").rename(tmp_path / "logs" / "clean")
    assert documents.check_files(page, heading, tmp_path) == (["logs/clean"], ["clean"])
