"""Pytest plugins for running the tests of a mutant."""

import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Optional

import pytest

# Test name -> numbers of the lines of the module that the test runs.
Lines = dict[str, set[int]]


class FirstFailure:
    """Records which test failed first, and why."""

    def __init__(self) -> None:
        self.test, self.reason = "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.test:
            self.test, self.reason = report.nodeid, _last_line(report.longreprtext)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.test:
            self.test, self.reason = report.nodeid, _last_line(report.longreprtext)


class LikelyFirst:
    """Runs the tests that reach the mutant before the others, the quick ones first.

    Only the order is a guess: a mutant survives only if all tests pass. Tests of a file stay
    together, since they share expensive fixtures.

    Args:
      ranks: test name -> rank; tests with low ranks run first.
    """

    def __init__(self, ranks: dict[str, float]) -> None:
        self._ranks = ranks

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        of_file: dict[Path, float] = {}
        for item in items:
            rank = self._ranks.get(item.nodeid, 0.0)
            of_file[item.path] = min(rank, of_file.get(item.path, rank))
        items.sort(key=lambda one: (of_file[one.path], self._ranks.get(one.nodeid, 0.0)))


class Tracer:
    """Records which lines of a file each test runs, its fixtures included, and how long it takes.

    Attributes:
      lines: test name -> numbers of the lines that the test runs.
      secs: test name -> seconds that the test takes.
    """

    def __init__(self, file: Path) -> None:
        self.lines: Lines = {}
        self.secs: dict[str, float] = {}
        self._file = str(file)
        self._now: set[int] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._now = self.lines.setdefault(item.nodeid, set())
        began = time.monotonic()
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.secs[item.nodeid] = time.monotonic() - began

    def _trace(self, frame: FrameType, event: str, arg: object) -> Optional[Callable[..., Any]]:
        if frame.f_code.co_filename != self._file:
            return None
        self._now.add(frame.f_lineno)
        return self._trace


def _last_line(text: str) -> str:
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return (errors or text.splitlines() or [""])[0][:200]
