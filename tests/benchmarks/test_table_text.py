from typing import Any

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.table_text import as_markdown


def test_a_row_is_its_fields_in_the_columns_templates() -> None:
    columns = [("way", "{way}"), ("images/s", "{rates[0]:,.0f} ({rates[1]:,.0f})"), ("", "{note}")]
    rows: list[dict[str, Any]] = [
        {"way": "ours", "rates": [1011, 932.4], "note": "`--sync`"},
        {"way": "theirs", "rates": None, "note": None},
    ]
    assert as_markdown(columns, rows).splitlines() == [
        "| way | images/s | |",
        "|---|---|---|",
        "| ours | 1,011 (932) | `--sync` |",
        "| theirs | | |",
    ]


@pytest.mark.parametrize(
    ("template", "value", "cell"),
    [
        ("{x:.1%}", 0.82, "82.0 %"),
        ("{x:.2%}", 0.9032, "90.32 %"),
        ("{x:minutes}", 498, "8 min 18 s"),
        ("{x:list}", [1, 2], "1, 2"),
        ("{x:percents}", [0.9002], "90.02 %"),
        ("{x:percents}", [0.9011, 0.8977], "90.11, 89.77 %"),
        ("{x:percents}", [0.9011, 0.9021, 0.8948], "90.11, 90.21, 89.48 %: 89.93 %"),
        ("{x:,.0f}", "142 to 178", "142 to 178"),
    ],
)
def test_a_format_shows_a_value_as_documents_do(template: str, value: Any, cell: str) -> None:
    assert as_markdown([("x", template)], [{"x": value}]).splitlines()[2] == f"| {cell} |"


@pytest.mark.parametrize("template", ["{y}", "{x[0]}", "{x:minutes}", "{x:", "{x:oddly}"])
def test_a_template_that_does_not_fit_its_rows_is_refused(template: str) -> None:
    with pytest.raises(BenchmarkError, match="must be a template for each row"):
        as_markdown([("x", template)], [{"x": 1.5}] if "minutes" not in template else [{"x": []}])
