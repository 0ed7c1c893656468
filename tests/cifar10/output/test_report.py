import io
import math
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cifar10.output.report import confusion_matrix_png, numbers, render_report
from cifar10.output.report.pictures import column
from cifar10.schema import CLASS_NAMES
from tests.cifar10 import report_sample

VOID = {"meta", "link", "img", "source", "br", "hr", "input"}


class _Balance(HTMLParser):
    """Collects the ids of a page, and fails on an element closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def render(**changes: Any) -> str:
    """Renders a result but for `changes`, without curves, which take half a second to draw."""
    result = {**report_sample.result(), "history": {"train": [], "validation": []}, **changes}
    return render_report(result, report_sample.mistakes(2))


@pytest.fixture(scope="module")
def page() -> str:
    return render_report(report_sample.result(), report_sample.mistakes())


def test_page_is_well_formed_with_unique_ids(page):
    balance = _Balance()
    balance.feed(page)
    assert balance.open == []
    assert len(balance.ids) == len(set(balance.ids))


def test_headline_gives_the_figures(page):
    for text in (
        "91.25\u202f%",
        "10,000 evaluation images",
        "95 % confidence interval: 90.7 to 91.8\u202f%",
        "91.88\u202f%",
        "at step 9,844",
        "37 min 48 s",
        "269,722",
        "7 November 2025, 14:03 UTC",
    ):
        assert text in page


def test_page_names_no_outside_address_and_forbids_any_request(page):
    # The namespaces of SVG are names that look like addresses; nothing fetches them.
    assert not re.search(r"(?:src|href|srcset)=\"(?!data:|#)", page)
    assert not re.search(r"url\((?!#)", page)
    assert "@import" not in page
    assert "<script" not in page
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in page


def test_mistake_shows_both_classes_their_probabilities_and_its_record():
    page = render()
    assert 'alt="Record 0: airplane, taken for cat"' in page
    assert "<b>cat</b> <span" in page
    assert "50.0\u202f%" in page
    assert "is airplane <span" in page
    assert "30.0\u202f%" in page


def test_confusion_table_has_headers_and_counts(page):
    table = page[page.index('<table class="matrix">') : page.index("</table>")]
    assert table.count('scope="row"') == 10
    assert table.count('scope="col"') == 10
    assert table.count("<td") == 1 + 100
    assert '<td style="--heat: 93%">868</td>' in table
    assert table.count('class="zero"') == 1
    assert "86.8\u202f%" in page[page.index("Accuracy of each class") :]


def test_names_from_outside_are_escaped():
    attack = "<script>alert(1)</script>"
    names = [attack, *CLASS_NAMES[1:]]
    data = report_sample.manifest()
    data["source"]["name"] = attack
    page = render(
        model=attack,
        class_names=names,
        data=data,
        command=[attack],
        configuration={attack: attack},
        versions={attack: attack},
        hardware={"cpu": attack, "cores": 2, "memory_gib": 7.8, "gpus": [attack]},
        status=attack,
    )
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 10


def test_empty_history_leaves_four_empty_charts():
    assert render().count("No finite figure was recorded.") == 4


def test_loss_that_stops_being_finite_is_named_with_its_step():
    history = report_sample.history()
    history["train"][99]["loss"] = math.nan
    assert "stopped being a finite number by step 2,930" in render(history=history)


def test_figures_missing_or_infinite_are_gaps():
    rows: list[dict[str, Any]] = [{"loss": 2.0}, {}, {"loss": math.inf}]
    np.testing.assert_array_equal(column(rows, "loss"), [2.0, math.nan, math.nan])


@pytest.mark.parametrize("name", ["$x_{$", "two\nlines"])
def test_confusion_matrix_becomes_a_png_even_with_empty_rows_and_odd_names(name):
    matrix = np.zeros((10, 10), dtype=np.int64)
    matrix[0, 0] = 5
    png = confusion_matrix_png(matrix, [name, *CLASS_NAMES[1:]])
    with Image.open(io.BytesIO(png)) as image:
        assert image.format == "PNG"
        assert image.size == (540, 500)


def test_a_cell_has_the_colour_of_the_root_of_its_share_of_its_row():
    matrix = np.diag([7] * 10)
    matrix[9, 0], matrix[9, 9] = 1, 3
    png = confusion_matrix_png(matrix, CLASS_NAMES)
    with Image.open(io.BytesIO(png)) as opened:
        image = opened.convert("RGB")
        # Just inside of the first cell, the last row's first and the first row's last: no digit.
        corners = [image.getpixel(place) for place in ((93, 81), (93, 483), (528, 81))]
    all_of_them, a_quarter, none = (37, 99, 235), (146, 177, 245), (255, 255, 255)
    # matplotlib has 256 shades.
    np.testing.assert_allclose(corners, (all_of_them, a_quarter, none), atol=1)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (numbers.percent(0.9125), "91.25\u202f%"),
        (numbers.percent(math.nan), "not a number"),
        (numbers.probability(1.0), "> 99.9\u202f%"),
        (numbers.fixed(0.31274), "0.313"),
        (numbers.fixed(0.0002), "0.0002"),
        (numbers.fixed(math.inf), "infinite"),
        (numbers.count(269_722), "269,722"),
        (numbers.duration(7.25), "7.2 s"),
        (numbers.duration(3_780), "1 h 03 min"),
        (numbers.size(140_535_000), "140.5 MB"),
        (numbers.day_and_time("2025-11-07T16:03:21+02:00"), "7 November 2025, 14:03 UTC"),
        (numbers.setting(None), "not set"),
        (numbers.accuracy_interval(1.0, 100), "96.3 to 100.0\u202f%"),
    ],
)
def test_numbers_are_written_for_people(written, expected):
    assert written == expected
