"""`--fast`: the tests that need neither TensorFlow nor processes that take long (make test-fast).

What is left out follows from what a test file imports, so nobody has to keep a list. Where that
does not tell, a test has the mark `slow`; TensorFlow cannot be imported meanwhile, so that a test
that loads it without the mark fails.
"""

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

ROOT = Path(__file__).resolve().parent.parent
_ROOMS = ("cifar10", "data_prep", "launch", "benchmarks", "testbeds", "tests")
# Whoever imports or uses these starts programs of ours, which takes seconds a test.
_STARTERS = ("testbeds.processes", "tests.shell")
_STARTING_FIXTURES = {"launcher", "compiled_kernels", "forks"}


class FastTests:
    """The pytest plugin: leaves out what is slow, and says how much that is."""

    def __init__(self) -> None:
        self._tests_left_out = 0
        sys.modules["tensorflow"] = None  # type: ignore[assignment]  # its import fails from now on

    def pytest_ignore_collect(self, collection_path: Path) -> Optional[bool]:
        """Files whose imports are slow are not even read."""
        return True if _is_test_file(collection_path) and why_slow(collection_path) else None

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: "list[pytest.Item]"
    ) -> None:
        """Of the other files, leaves out the tests that are slow."""
        slow = [item for item in items if _is_slow(item)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
        if hasattr(config, "workeroutput"):
            config.workeroutput["left_out"] = len(slow)
        self._tests_left_out = len(slow)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """With xdist, its processes collect; all of them the same."""
        self._tests_left_out = getattr(node, "workeroutput", {}).get("left_out", 0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Says what is left out, and how to run it."""
        files = [path for path in (ROOT / "tests").rglob("test_*.py") if why_slow(path)]
        terminalreporter.write_line(
            f"Left out: {len(files)} files that load TensorFlow or start programs, and "
            f"{self._tests_left_out} tests of others that take long; `make test` runs them, "
            "`make test-system` those in tests/system."
        )


def _is_test_file(path: Path) -> bool:
    return path.name.startswith("test_") and path.suffix == ".py"


def _is_slow(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    return item.get_closest_marker("slow") is not None or bool(fixtures & _STARTING_FIXTURES)


def why_slow(path: Path) -> Optional[str]:
    """What makes a test file slow: TensorFlow, or the helper that starts programs; None if fast.

    Args:
      path: of the file; what it imports counts with what that imports in turn.
    """
    if (ROOT / "tests" / "system") in path.parents:
        return "tests/system"
    imported = _imported(path)
    return next((name for name in ("tensorflow", *_STARTERS) if name in imported), None)


@functools.cache
def _imported(path: Path) -> frozenset[str]:
    """All modules that importing a file imports: ours by their full names, of others the first."""
    found, waiting = set(), [path]
    seen = {path}
    while waiting:
        for name in _imports(waiting.pop()):
            room = name.partition(".")[0]
            found.add(name if room in _ROOMS else room)
            for one in _files_of(name) if room in _ROOMS else ():
                if one not in seen:
                    seen.add(one)
                    waiting.append(one)
    return frozenset(found)


@functools.cache
def _imports(path: Path) -> tuple[str, ...]:
    """What a file imports when it is loaded, each as `package.module`, perhaps `.name`."""
    return tuple(_imports_of(ast.parse(path.read_text(encoding="utf-8"))))


def _imports_of(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue  # It imports when it is called.
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
            yield str(child.module)
        else:
            yield from _imports_of(child)


def _files_of(name: str) -> Iterator[Path]:
    """The files that importing `a.b.c` loads: of a, of a.b, and of a.b.c if that is a module."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        place = ROOT.joinpath(*parts[:count])
        for path in (place / "__init__.py", place.with_suffix(".py")):
            if path.is_file():
                yield path
