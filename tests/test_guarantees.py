"""docs/guarantees.md names tests and cells that exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.faults.cells import every_cell

_TEST = re.compile(r"`(tests/[\w/]+\.py)?::(\w+)`|`(tests/[\w/]+\.py)`")
_CELL = re.compile(r"`((?:sig|oom|full|readonly|cut|clock|slow)[\w-]*(?:/[\w-]+){3})`")


def named_tests(text: str) -> list[tuple[str, str]]:
    """Returns (file, function) of each test; a name without a file is in the file named before."""
    found, file = [], ""
    for match in _TEST.finditer(text):
        file = match[1] or match[3] or file
        found.append((file, match[2] or ""))
    return found


def functions(path: Path) -> set[str]:
    return {
        node.name for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }  # fmt: skip


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs" / "guarantees.md").read_text("utf-8")


def test_every_test_that_the_page_names_exists(root: Path, page: str) -> None:
    named = named_tests(page)
    assert len(named) > 50
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (root / file).exists() or (name and name not in functions(root / file))
    ]
    assert missing == []


def test_every_cell_that_the_page_names_exists(page: str) -> None:
    named = _CELL.findall(page)
    assert len(named) > 15
    assert set(named) <= {cell.name for cell in every_cell()}
