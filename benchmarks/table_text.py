"""A table of measured results as Markdown: its columns are templates over the fields of a row.

A template is a format string, `{ours[0]:,.0f} ({ours[1]:,.0f} to {ours[2]:,.0f})`. A cell one of
whose fields is null is empty. A word where a number is expected is shown as it is. Beside Python's
formats there are

  .1%       0.82 -> `82.0 %`, with a space
  minutes   498 -> `8 min 18 s`
  list      [1, 2] -> `1, 2`
  percents  [.9011, .8977] -> `90.11, 89.77 %`; from three on with their mean, `...: 89.93 %`
"""

import string
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.errors import BenchmarkError

_MEAN_FROM = 3


class _Cells(string.Formatter):
    """str.format with the formats of this module."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """One field as text."""
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
    """The table, without a line end after it.

    Args:
      columns: (title, template) of each.
      rows: field -> value.

    Raises:
      BenchmarkError: a template names a field that a row has not, or has as something else.
    """
    lines = [[title for title, _ in columns], ["---"] * len(columns)]
    lines += [[_cell(template, row) for _, template in columns] for row in rows]
    # `| title | | next |`: an empty cell is one space.
    return "\n".join("|".join(["", *map(_padded, line), ""]) for line in lines)


def machine_text(hardware: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """`2 cores of a CPU; Python 3.11.7, TensorFlow 2.15.1`, from what `result.json` records."""
    devices = hardware["gpus"] or [f"{hardware['cores']} cores of {hardware['cpu']}"]
    names = {"python": "Python", "tensorflow": "TensorFlow", "torch": "PyTorch"}
    used = [f"{name} {versions[key]}" for key, name in names.items() if key in versions]
    return f"{', '.join(devices)}; {', '.join(used)}"


def _padded(cell: str) -> str:
    return cell if cell == "---" else f" {cell} " if cell else " "


def _cell(template: str, row: Mapping[str, Any]) -> str:
    cells = _Cells()
    try:
        # `ratio[0]` is of the field `ratio`.
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
