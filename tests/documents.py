"""Reads the tables of the pages in docs/, to compare them with the code."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FORMATS = "docs/formats.md"
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_PART = re.compile(r"([.\[])")


def rows(markdown: str, column: str) -> list[dict[str, str]]:
    """Returns the rows of all tables that have a column of this title; a row maps title to cell."""
    found: list[dict[str, str]] = []
    for block in re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE):
        titles, _, *lines = [_cells(line) for line in block.splitlines()]
        if column in titles:
            found += [dict(zip(titles, cells)) for cells in lines]
    return found


def code_spans(cell: str) -> list[str]:
    """Returns the code spans of a cell, without their delimiting backticks."""
    return [span.strip() for _, span in _SPAN.findall(cell)]


def section(markdown: str, heading: str) -> str:
    """Returns the text below a heading, up to the next heading of that level or a higher one."""
    (start,) = re.finditer(rf"^(#+) {re.escape(heading)}$", markdown, re.MULTILINE)
    rest = markdown[start.end() :]
    end = re.search(rf"^#{{1,{len(start[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def code_blocks(page: str, heading: str, language: str) -> list[str]:
    """Returns the code blocks of a language in one section of a page, a path from the root."""
    # Unlike `section`, this takes no comment in a block for a heading.
    parts = (ROOT / page).read_text(encoding="utf-8").split("\n## ")
    (text,) = (part for part in parts if part.startswith(f"{heading}\n"))
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def check_fields(page: str, heading: str, content: Any) -> tuple[list[str], list[str]]:
    """Compares the fields that a page names with those of a file.

    A field is a path such as `history.train[].step`; a part in capitals stands for any key.

    Args:
      page: path of the page from the repository's root.
      heading: heading of the page's section that has the table.
      content: the parsed JSON of the file.

    Returns:
      (fields that the page does not name, fields of the page that the file lacks).
    """
    return _compare(page, heading, "field", _path_pattern, set(_paths(content)))


def check_files(page: str, heading: str, folder: Path) -> tuple[list[str], list[str]]:
    """Compares the files that a page names with those of a folder.

    In a name, capitals and `*` stand for any text; a name that ends in / stands for all files in
    that folder.

    Args:
      page: path of the page from the repository's root.
      heading: heading of the page's section that has the table.
      folder: the folder.

    Returns:
      (files that the page does not name, names of the page that the folder lacks).
    """
    paths = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return _compare(page, heading, "file", _name_pattern, paths)


def _compare(
    page: str, heading: str, column: str, pattern: Callable[[str], re.Pattern[str]], paths: set[str]
) -> tuple[list[str], list[str]]:
    table = rows(section((ROOT / page).read_text(encoding="utf-8"), heading), column)
    named = {name: pattern(name) for row in table for name in code_spans(row[column])}
    unnamed = [path for path in paths if not any(p.fullmatch(path) for p in named.values())]
    unused = [name for name, p in named.items() if not any(map(p.fullmatch, paths))]
    return sorted(unnamed), unused


def _name_pattern(name: str) -> re.Pattern[str]:
    parts = re.split(r"[A-Z]{2,}|\*|(?<=/)$", name)
    return re.compile(".*".join(map(re.escape, parts)))


def _path_pattern(field: str) -> re.Pattern[str]:
    parts = (r"[^.\[]+" if re.fullmatch("[A-Z]+", p) else re.escape(p) for p in _PART.split(field))
    return re.compile("".join(parts))


def _paths(content: Any, path: str = "") -> Iterator[str]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _paths(value, f"{path}.{key}" if path else key)
    elif isinstance(content, list):
        for value in content or [None]:
            yield from _paths(value, f"{path}[]")
    else:
        yield path
