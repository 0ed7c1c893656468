"""The report as a browser shows it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cifar10.output.report import render_report
from tests.cifar10 import report_sample
from tests.system.chromium import Chromium

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    page = render_report(report_sample.result(), report_sample.mistakes())
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


def test_every_picture_is_decoded_and_has_a_text_alternative(browser, report):
    browser.open(report.as_uri())
    assert browser.evaluate("document.title") == "ResNet-20 v1: 91.25\u202f% on CIFAR-10"
    pictures = browser.evaluate(
        "[...document.images].map(one => [one.complete, one.naturalWidth, one.alt.length])"
    )
    assert len(pictures) == 38
    assert all(complete and alt > 10 for complete, _, alt in pictures)
    assert sorted({width for _, width, _ in pictures}) == [32, 780, 2160]


def test_nothing_is_requested_and_nothing_is_complained_about(browser, report):
    browser.open(report.as_uri())
    addresses = [
        event["request"]["url"]
        for event in browser.reported("Network.requestWillBeSent")
        if not event["request"]["url"].startswith("data:")
    ]
    assert addresses == [report.as_uri()]
    for event in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
        assert browser.reported(event) == []


def test_page_forbids_a_request_that_somebody_adds(browser, report, tmp_path):
    text = report.read_text(encoding="utf-8")
    added = '<img src="https://example.invalid/pixel.png"></main>'
    changed = tmp_path / "changed.html"
    changed.write_text(text.replace("</main>", added), encoding="utf-8")
    browser.open(changed.as_uri())
    complaints = [event["entry"]["text"] for event in browser.reported("Log.entryAdded")]
    assert any("Content Security Policy" in complaint for complaint in complaints)


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_page_never_scrolls_sideways(browser, report, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    browser.open(report.as_uri())
    assert browser.evaluate("document.documentElement.scrollWidth") == width
