import base64
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cifar10.output.report import render_report
from tests.cifar10 import report_sample
from tests.system.chromium import Chromium

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    page = render_report(report_sample.result(), report_sample.mistakes())
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture
def page(browser: Chromium, report: Path) -> Chromium:
    show(browser, report, width=1280)
    return browser


def show(browser: Chromium, report: Path, *, width: int, scheme: str = "light") -> None:
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    browser.call(
        "Emulation.setEmulatedMedia",
        features=[{"name": "prefers-color-scheme", "value": scheme}],
    )
    browser.open(report.as_uri())


def screenshot(browser: Chromium) -> Image.Image:
    shot = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
    return Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")


def displayed(browser: Chromium, selector: str) -> int:
    """Counts the elements that a reader can see: those that take up room."""
    return int(
        browser.evaluate(
            f"[...document.querySelectorAll('{selector}')].filter("
            "one => { const box = one.getBoundingClientRect();"
            " return box.width > 10 && box.height > 10 && one.checkVisibility(); }).length"
        )
    )


def test_title_and_headline_are_displayed(page):
    assert page.evaluate("document.title") == "ResNet-20 v1: 91.25\u202f% on CIFAR-10"
    assert page.evaluate("document.querySelector('h1').innerText") == "ResNet-20 v1 on CIFAR-10"
    assert page.evaluate("document.querySelector('.hero-figure').innerText") == "91.25\u202f%"
    assert displayed(page, ".tiles > div") == 6


def test_four_charts_show_six_curves_in_the_pages_colours(page):
    boxes = page.evaluate(
        "[...document.querySelectorAll('.chart img')].map(one => one.getBoundingClientRect())"
        ".map(box => [box.left, box.top, box.right, box.bottom])"
    )
    shown = screenshot(page)
    charts = [np.asarray(shown.crop(tuple(box))) for box in boxes]
    curves = [
        [(chart == colour).all(axis=2).sum() > 50 for colour in ((37, 99, 235), (217, 102, 11))]
        for chart in charts
    ]
    assert curves == [[True, True], [True, True], [True, False], [True, False]]


def test_confusion_matrix_is_a_table_of_ten_rows(page):
    assert displayed(page, "table.matrix tbody tr") == 10
    cells = "[...document.querySelectorAll('table.matrix tbody tr')[3].cells]"
    assert page.evaluate(f"{cells}.map(one => one.innerText)") == [
        *("cat", "6", "6", "6", "868", "6", "84", "6", "6", "6", "6")
    ]


def test_mistakes_are_displayed_enlarged_and_unsmoothed(page):
    assert displayed(page, ".mistakes li") == 36
    assert displayed(page, ".mistakes img") == 36
    style = "getComputedStyle(document.querySelector('.mistakes img'))"
    assert page.evaluate(f"{style}.imageRendering") == "pixelated"
    assert page.evaluate("document.querySelector('.mistakes img').clientWidth") >= 96


def test_every_picture_is_decoded_and_has_a_text_alternative(page):
    pictures = page.evaluate(
        "[...document.images].map(one => [one.complete, one.naturalWidth, one.alt.length])"
    )
    assert len(pictures) == 40
    assert all(complete and alt > 10 for complete, _, alt in pictures)
    assert sorted({width for _, width, _ in pictures}) == [32, 518]


def test_nothing_is_requested_and_nothing_is_complained_about(page, report):
    addresses = [
        event["request"]["url"]
        for event in page.reported("Network.requestWillBeSent")
        if not event["request"]["url"].startswith("data:")
    ]
    assert addresses == [report.as_uri()]
    assert page.reported("Log.entryAdded") == []
    assert page.reported("Runtime.consoleAPICalled") == []
    assert page.reported("Runtime.exceptionThrown") == []


def test_page_forbids_a_request_that_somebody_adds(browser, report, tmp_path):
    text = report.read_text(encoding="utf-8")
    added = '<img src="https://example.invalid/pixel.png"></main>'
    changed = tmp_path / "changed.html"
    changed.write_text(text.replace("</main>", added), encoding="utf-8")
    browser.open(changed.as_uri())
    complaints = [event["entry"]["text"] for event in browser.reported("Log.entryAdded")]
    assert any("Content Security Policy" in complaint for complaint in complaints)


@pytest.mark.parametrize("width", [320, 400, 768, 1280])
def test_page_never_scrolls_sideways(browser, report, width):
    show(browser, report, width=width)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert displayed(browser, ".chart img") == 4


@pytest.mark.parametrize(("scheme", "darkest", "lightest"), [("light", 230, 255), ("dark", 0, 40)])
def test_page_follows_the_readers_colour_scheme(browser, report, scheme, darkest, lightest):
    show(browser, report, width=1280, scheme=scheme)
    pixels = np.asarray(screenshot(browser))
    # The median pixel is one of the background, and no chart may stand out from it.
    assert darkest <= np.median(pixels) <= lightest
    for box in browser.evaluate(
        "[...document.querySelectorAll('.chart img')].map(one => one.getBoundingClientRect())"
        ".map(box => [box.left, box.top])"
    ):
        left, top = map(round, box)
        assert darkest <= pixels[top + 5, left + 5].mean() <= lightest


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_counts_can_be_read_on_the_strongest_colour(browser, report, scheme):
    show(browser, report, width=1280, scheme=scheme)
    cell = "getComputedStyle(document.querySelector('table.matrix tbody td'))"
    on, ink = (browser.evaluate(f"{cell}.{name}") for name in ("backgroundColor", "color"))
    # WCAG 2.1: a contrast of 4.5 or more. One colour is written in shares of 1, the other of 255.
    shares = [float(word) for word in re.findall(r"[\d.]+", on)[:3]]
    levels = [int(word) / 255 for word in re.findall(r"\d+", ink)[:3]]
    darker, lighter = sorted((luminance(shares), luminance(levels)))
    assert on.startswith("color(srgb")
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def luminance(colour: Sequence[float]) -> float:
    """Returns the relative luminance of an sRGB colour, by WCAG 2.1."""
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in colour]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_page_prints_without_losing_a_column(browser, report):
    show(browser, report, width=718)  # the width of A4 with Chromium's margins
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate("document.documentElement.scrollWidth") == 718
    assert matrix_fits(browser)
    assert browser.call("Page.printToPDF")["data"].startswith("JVBERi0")  # %PDF-


@pytest.mark.parametrize("width", [390, 561, 861, 1280])
def test_no_column_of_the_confusion_matrix_is_out_of_sight(browser, report, width):
    show(browser, report, width=width)
    assert matrix_fits(browser)


def matrix_fits(browser: Chromium) -> bool:
    """Returns whether the table is no wider than the room in its card, nor a name or number."""
    return bool(
        browser.evaluate(
            "(() => { const table = document.querySelector('table.matrix');"
            " const card = table.parentElement, style = getComputedStyle(card);"
            " const room = card.clientWidth"
            " - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);"
            " const cells = [...table.querySelectorAll('tbody > tr > *')];"
            " return table.offsetWidth <= room + 0.5"
            " && cells.every(one => one.scrollWidth <= one.clientWidth); })()"
        )
    )


def test_confusion_matrix_can_be_read_on_a_phone(browser, report):
    show(browser, report, width=390)
    cells = "[...document.querySelectorAll('table.matrix tbody td')]"
    # The size of small print or more.
    assert browser.evaluate(f"parseFloat(getComputedStyle({cells}[0]).fontSize)") >= 11
    colours = [browser.evaluate(f"getComputedStyle({cells}[{i}]).backgroundColor") for i in (0, 1)]
    assert colours[0] != colours[1]  # 952 images, and none
