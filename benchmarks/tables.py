"""Writes the tables of measured results in the documents, from benchmarks/results/.

    python -m benchmarks tables

The text between `<!-- table: NAME -->` and `<!-- end -->` in a Markdown document is made from
benchmarks/results/NAME.json, which holds the figures, the conditions of the measurement and the
number of runs; most benchmarks write such a file with `--out`. A translation, README.zh.md, keeps
the headings that its table has; docs/results.md has the conditions below each table. Where rows
have `curves`, the command also draws docs/pictures/NAME.png.

The columns of a table are templates over the fields of its rows, as
`{ours[0]:,.0f}`. A cell is empty if one of its fields is null. A string is shown unchanged,
whatever its format. Besides Python's formats there are:

  .1%       0.82 -> `82.0 %`, with a space
  minutes   498 seconds -> `8 min 18 s`
  list      [1, 2] -> `1, 2`
  spread.1f [2, 1, 4] -> `2.0 (1.0 to 4.0)`, and the first alone if all are equal
  percents  [.9011, .8977] -> `90.11, 89.77 %`; three or more are followed by their mean,
            `...: 89.93 %`
"""

import json
import re
import shlex
import string
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Optional

from benchmarks.arguments import BenchmarkError, new_parser
from benchmarks.runs import machine_text
from cifar10.report import draw_curves
from testbeds.processes import ROOT

# The conditions that a results file states besides its measurements; null means not stated.
_CONDITIONS = ("what", "command", "hardware", "versions", "data", "n")
_KEYS = {*_CONDITIONS, "columns", "rows"}
_TABLE = re.compile(r"(<!-- table: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_MARKER = re.compile(r"<!-- (?:table: |end -->)")
_MEAN_FROM = 3


def main(argv: Sequence[str]) -> None:
    """Writes the documents whose tables are out of date."""
    new_parser("tables", __doc__).parse_args(argv)
    for path, text in renewed(ROOT).items():
        path.write_text(text, encoding="utf-8")
        print(f"written: {path.relative_to(ROOT)}")
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        curves = {
            f"{row['way'].strip('`')}, run {number}": {"train": [], "validation": curve}
            for row in read_results(path)["rows"]
            for number, curve in enumerate(row.get("curves", ()), 1)
        }
        if curves:
            picture = ROOT / "docs" / "pictures" / f"{path.stem}.png"
            picture.write_bytes(draw_curves(curves)["Accuracy"])


def documents(root: Path) -> list[Path]:
    """Returns the paths of the Markdown documents that may hold tables."""
    patterns = ("README*.md", "docs/**/*.md", "benchmarks/README.md")
    return [path for pattern in patterns for path in sorted(root.glob(pattern))]


def names(text: str) -> list[str]:
    """Returns the names of the tables in a document."""
    return [name for _, name, _, _ in _TABLE.findall(text)]


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
            if len(_MARKER.findall(before)) != 2 * len(names(before)):
                raise BenchmarkError("a line `end` must follow each line `table: NAME`; add it")
            after = _TABLE.sub(partial(_renewed_table, folder, path), before)
        except BenchmarkError as error:
            raise BenchmarkError(f"{path.relative_to(root)}: {error}") from None
        if after != before:
            result[path] = after
    return result


def _renewed_table(folder: Path, path: Path, found: re.Match[str]) -> str:
    content = read_results(folder / f"{found[2]}.json")
    headings, _, rest = as_markdown(content["columns"], content["rows"]).partition("\n")
    if len(path.suffixes) > 1 and found[3].count("|") > 1:  # README.zh.md has its own headings.
        headings = found[3].partition("\n")[0]
    if path.name == "results.md":
        parts = [content[name] for name in ("hardware", "versions", "data") if content[name]]
        rest += "\n\n" + "; ".join([*parts, f"n = {content['n']}"])
    return f"{found[1]}{headings}\n{rest}\n{found[4]}"


def read_results(path: Path) -> dict[str, Any]:
    """Reads a results file.

    Raises:
      BenchmarkError: the file is missing, or has other keys or no rows.
    """
    if not path.exists():
        raise BenchmarkError(f"there are no results {path}; write them, or correct the name")
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or set(content) != _KEYS or not content["rows"]:
        raise BenchmarkError(f"{path} must have rows, and exactly {', '.join(sorted(_KEYS))}")
    return content


def report(
    what: str,
    columns: Sequence[Sequence[str]],
    rows: Sequence[Mapping[str, Any]],
    n: object,
    argv: Sequence[str],
    out: Optional[Path] = None,
    data: Optional[str] = None,
    **versions: str,
) -> None:
    """Prints the machine and a table, and writes a results file.

    Args:
      what: what was measured, after the name of the benchmark.
      columns: a (title, template) pair for each column.
      rows: a mapping from field to value for each row.
      n: number of rounds, or of runs.
      argv: the benchmark's command line.
      out: path of the results file; None: no file.
      data: the images, for the file; None: not stated.
      **versions: further packages and their versions.
    """
    # Imported here since it loads TensorFlow, which would take time and memory from the runs.
    from cifar10.step import devices

    machine = machine_text(devices.hardware(), {**devices.versions(), **versions})
    print(f"{machine}; n = {n}\n\n{as_markdown(columns, rows)}")
    if out is not None:
        hardware, _, packages = machine.partition("; ")
        command = shlex.join(["python", "-m", "benchmarks", re.split(r"\W", what)[0], *argv])
        values = (what, command, hardware, packages, data, n)
        content = {**dict(zip(_CONDITIONS, values)), "columns": columns, "rows": rows}
        out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def as_markdown(columns: Sequence[Sequence[str]], rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table, without a newline at its end.

    Args:
      columns: a (title, template) pair for each column.
      rows: a mapping from field to value for each row.

    Raises:
      BenchmarkError: a row lacks a field of a template, or its value does not fit the format.
    """
    lines = [[title for title, _ in columns], ["---"] * len(columns)]
    lines += [[_cell(template, row) for _, template in columns] for row in rows]
    # `| title | | next |`: an empty cell is one space.
    padded = [
        [cell if cell == "---" else f" {cell} " if cell else " " for cell in line] for line in lines
    ]
    return "\n".join("|".join(["", *line, ""]) for line in padded)


class _Cells(string.Formatter):
    """A formatter that also knows the formats of this module."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Returns the text of one field."""
        if isinstance(value, str):
            return value
        if format_spec.endswith("%"):
            return f"{value:{format_spec}}"[:-1] + " %"
        if format_spec == "minutes":
            return f"{value // 60} min {value % 60} s"
        if format_spec.startswith("spread"):
            middle, low, high = (f"{number:{format_spec[6:]}}" for number in value)
            return middle if len(set(value)) == 1 else f"{middle} ({low} to {high})"
        if format_spec == "list":
            return ", ".join(map(str, value))
        if format_spec == "percents":
            text = ", ".join(f"{100 * share:.2f}" for share in value) + " %"
            mean = f": {100 * sum(value) / len(value):.2f} %"
            return text + mean * (len(value) >= _MEAN_FROM)
        return str(super().format_field(value, format_spec))


def _cell(template: str, row: Mapping[str, Any]) -> str:
    cells = _Cells()
    try:
        # `ratio[0]` and `way.title` refer to the fields `ratio` and `way`.
        fields = [re.split(r"[.[]", name)[0] for _, name, _, _ in cells.parse(template) if name]
        if any(row[field] is None for field in fields):
            return ""
        return cells.vformat(template, (), row)
    except (LookupError, TypeError, ValueError) as error:
        raise BenchmarkError(
            f"{template!r} must be a template for each row, and {dict(row)} has no such field or "
            f"value ({error})"
        ) from error
