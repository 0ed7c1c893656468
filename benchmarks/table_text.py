"""Formats measured results as a Markdown table whose columns are templates over the row's fields.

A template is a format string such as `{ours[0]:,.0f} ({ours[1]:,.0f} to {ours[2]:,.0f})`. A cell is
empty if one of its fields is null. A string is shown unchanged, whatever its format. Besides
Python's formats there are:

  .1%       0.82 -> `82.0 %`, with a space
  minutes   498 seconds -> `8 min 18 s`
  list      [1, 2] -> `1, 2`
  percents  [.9011, .8977] -> `90.11, 89.77 %`; three or more are followed by their mean,
            `...: 89.93 %`
"""

import string
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.errors import BenchmarkError

_MEAN_FROM = 3


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
        if format_spec == "list":
            return ", ".join(map(str, value))
        if format_spec == "percents":
            return _percents(value)
        return str(super().format_field(value, format_spec))


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
    return "\n".join("|".join(["", *map(_padded, line), ""]) for line in lines)


def machine_text(hardware: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Describes a machine, e.g. `2 cores of a CPU; Python 3.11.7, TensorFlow 2.15.1`.

    Args:
      hardware: as `result.json` records it; GPUs, if there are any, replace the CPU in the text.
      versions: package -> version, as `result.json` records them.
    """
    devices = hardware["gpus"] or [f"{hardware['cores']} cores of {hardware['cpu']}"]
    names = {"python": "Python", "tensorflow": "TensorFlow", "torch": "PyTorch"}
    used = [f"{name} {versions[key]}" for key, name in names.items() if key in versions]
    return f"{', '.join(devices)}; {', '.join(used)}"


def _padded(cell: str) -> str:
    return cell if cell == "---" else f" {cell} " if cell else " "


def _cell(template: str, row: Mapping[str, Any]) -> str:
    cells = _Cells()
    try:
        # `ratio[0]` refers to the field `ratio`.
        fields = [name.partition("[")[0] for _, name, _, _ in cells.parse(template) if name]
        if any(row[field] is None for field in fields):
            return ""
        return cells.vformat(template, (), row)
    except (LookupError, TypeError, ValueError) as error:
        raise BenchmarkError(
            f"{template!r} must be a template for each row, and {dict(row)} has no such field or "
            f"value ({error})"
        ) from error


def _percents(values: Sequence[float]) -> str:
    text = ", ".join(f"{100 * value:.2f}" for value in values) + " %"
    if len(values) < _MEAN_FROM:
        return text
    return f"{text}: {100 * sum(values) / len(values):.2f} %"
