"""Writes the tables of measured results in the documents, from benchmarks/results/.

    python -m benchmarks tables            writes them
    python -m benchmarks tables --check    says which are out of date: exit code 1

The text between `<!-- table: NAME -->` and `<!-- end -->` in a Markdown document is made from
benchmarks/results/NAME.json, which holds the figures, the conditions of the measurement and the
number of runs (benchmarks/table_text.py describes its columns). The tables `converge` and
`learning` are made from the curves in the folders of these names in benchmarks/results/.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.arguments import new_parser
from benchmarks.convergence.table import curves_table
from benchmarks.errors import BenchmarkError
from benchmarks.learning.learning import learning_table
from benchmarks.table_text import as_markdown
from launch.cluster.host_list import ROOT

# Tables that are made from a folder of curves, not from one file.
CURVES = {"converge": curves_table, "learning": learning_table}
# The conditions that a results file states besides its figures; null means not stated.
CONDITIONS = ("what", "command", "hardware", "versions", "data", "n")
_KEYS = {*CONDITIONS, "columns", "rows"}
_TABLE = re.compile(r"(<!-- table: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_MARKER = re.compile(r"<!-- (?:table: |end -->)")


def main(argv: Sequence[str]) -> int:
    """Writes the tables or, with --check, names the documents that are out of date.

    Returns:
      The exit code: 1 if --check found a document that is out of date, else 0.
    """
    parser = new_parser("tables", __doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(argv).check
    stale = renewed(ROOT)
    for path, text in stale.items():
        if check:
            print(f"{path.relative_to(ROOT)} is out of date: python -m benchmarks tables")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}")
    return 1 if check and stale else 0


def documents(root: Path) -> list[Path]:
    """Returns the paths of the Markdown documents that may hold tables."""
    return [
        *sorted(root.glob("README*.md")),
        *sorted((root / "docs").glob("*.md")),
        root / "benchmarks/README.md",
    ]


def renewed(root: Path) -> dict[Path, str]:
    """Returns the documents whose tables are out of date: path -> the text that is up to date.

    Raises:
      BenchmarkError: a start or end marker has no counterpart, or results are missing or invalid.
    """
    folder = root / "benchmarks" / "results"
    result = {}
    for path in documents(root):
        before = path.read_text(encoding="utf-8")
        try:
            after = with_tables(before, lambda name: table(folder, name))
        except BenchmarkError as error:
            raise BenchmarkError(f"{path.relative_to(root)}: {error}") from None
        if after != before:
            result[path] = after
    return result


def with_tables(text: str, make: Callable[[str], str]) -> str:
    """Returns a document's text with each table replaced by `make(name)`.

    Raises:
      BenchmarkError: a start or end marker has no counterpart.
    """
    if len(_MARKER.findall(text)) != 2 * len(_TABLE.findall(text)):
        raise BenchmarkError(
            "each `<!-- table: NAME -->` must be a line that is followed by a line `<!-- end -->`"
        )
    return _TABLE.sub(lambda found: f"{found[1]}{make(found[2])}\n{found[4]}", text)


def names(text: str) -> list[str]:
    """Returns the names of the tables in a document."""
    return [name for _, name, _, _ in _TABLE.findall(text)]


def table(folder: Path, name: str) -> str:
    """Returns the table of that name as Markdown.

    Raises:
      BenchmarkError: the results are missing or invalid.
    """
    if name in CURVES:
        return CURVES[name](folder / name)
    content = read_results(folder / f"{name}.json")
    return as_markdown(content["columns"], content["rows"])


def read_results(path: Path) -> dict[str, Any]:
    """Reads a results file.

    Raises:
      BenchmarkError: the file is missing, is not JSON, or has other keys or no rows.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BenchmarkError(
            f"there are no results {path}; write them, or correct the name"
        ) from None
    except ValueError as error:
        raise BenchmarkError(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict) or set(content) != _KEYS or not content["rows"]:
        raise BenchmarkError(f"{path} must have rows, and exactly {', '.join(sorted(_KEYS))}")
    return content
