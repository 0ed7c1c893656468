"""`--fast`: runs only tests that need neither TensorFlow nor slow processes (make test-fast).

A test file is left out because of what it imports, so there is no list to maintain. Where imports
do not tell, a test has the mark `slow`. TensorFlow cannot be imported in such a run, so a test that
loads it without the mark fails.
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
# Tests that import these modules or use these fixtures start our programs or a compiler, which
# takes seconds per test.
_STARTERS = ("testbeds.processes", "testbeds.ports", "testbeds.terminal", "tests.shell")
_STARTING_FIXTURES = {"launcher", "running", "compiled_kernels", "forks"}


class FastTests:
    """A pytest plugin that leaves out slow tests and reports how many."""

    def __init__(self) -> None:
        self._tests_left_out = 0
        sys.modules["tensorflow"] = None  # type: ignore[assignment]  # its import fails from now on

    def pytest_ignore_collect(self, collection_path: Path) -> Optional[bool]:
        """Skips test files whose imports are slow."""
        return True if _is_test_file(collection_path) and why_slow(collection_path) else None

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: "list[pytest.Item]"
    ) -> None:
        """Leaves out the slow tests of the other files."""
        slow = [item for item in items if _is_slow(item)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
        if hasattr(config, "workeroutput"):
            config.workeroutput["left_out"] = len(slow)
        self._tests_left_out = len(slow)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """With xdist, takes the count from a worker; all workers collect the same tests."""
        self._tests_left_out = getattr(node, "workeroutput", {}).get("left_out", 0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints what is left out, and how to run it."""
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
    """Returns why a test file is slow: its folder or a module that it imports; None if it is fast.

    Args:
      path: path of the test file; indirect imports count, too.
    """
    if (ROOT / "tests" / "system") in path.parents:
        return "tests/system"
    imported = _imported(path)
    return next((name for name in ("tensorflow", *_STARTERS) if name in imported), None)


@functools.cache
def _imported(path: Path) -> frozenset[str]:
    """Returns all modules that a file imports, directly or not.

    Modules of this project have full names, others the name of their top-level package.
    """
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
    """Returns what a file imports when it is loaded, each as `package.module` or with `.name`."""
    return tuple(_imports_of(ast.parse(path.read_text(encoding="utf-8"))))


def _imports_of(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue  # Its imports run only when it is called.
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
            yield str(child.module)
        else:
            yield from _imports_of(child)


def _files_of(name: str) -> Iterator[Path]:
    """Yields the files that importing `a.b.c` loads: those of a, a.b and, if a module, a.b.c."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        place = ROOT.joinpath(*parts[:count])
        for path in (place / "__init__.py", place.with_suffix(".py")):
            if path.is_file():
                yield path
