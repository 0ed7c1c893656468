"""The results of mutants of a small module, and how a run is judged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import report
from tests.mutants.mutations import Mutant
from tests.mutants.runner import Result

_MODULE = """
LIMIT = 7


def clipped(number):
    return min(number, LIMIT)


def even(number):
    while number % 2:
        number += 1
    return number


def untested():
    return 5
"""
_TESTS = """
from clipping import clipped, even


def test_clipped():
    assert [clipped(6), clipped(8)] == [6, 7]


def test_even():
    assert even(3) == 4
"""
# Runs every mutant in a process that has used nothing before, and allows each 2 s of a processor.
_SCRIPT = """
import dataclasses, json
from pathlib import Path
from tests.mutants import runner
from tests.mutants.mutations import mutants_of

root, tests = Path.cwd(), ["test_clipping.py"]
baseline = runner.measure(root, "clipping.py", tests)
baseline = dataclasses.replace(baseline, limits=runner.Limits(120, 2))
mutants = mutants_of("clipping.py", Path("clipping.py").read_text())
results = runner.run(root, tests, baseline, mutants, 2)
print(json.dumps({one.mutant.change: [one.status, one.test] for one in results}))
"""


def run(folder: Path, root: Path, tests: str) -> "subprocess.CompletedProcess[str]":
    (folder / "clipping.py").write_text(_MODULE, encoding="utf-8")
    (folder / "test_clipping.py").write_text(tests, encoding="utf-8")
    command = [sys.executable, "-c", _SCRIPT]
    return subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(root)}, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Any:
    """What became of each mutant, [status, test that killed it], by its change."""
    done = run(tmp_path_factory.mktemp("small"), root, _TESTS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_mutant_that_a_test_notices_is_killed_by_it(results: Any) -> None:
    assert results["7 -> 8"] == ["killed", "test_clipping.py::test_clipped"]
    assert results["number % 2 -> False"] == ["killed", "test_clipping.py::test_even"]


@pytest.mark.slow
def test_a_mutant_of_a_line_without_a_test_survives(results: Any) -> None:
    assert results["5 -> 6"] == ["survived", ""]


@pytest.mark.slow
def test_a_mutant_that_never_ends_hangs(results: Any) -> None:
    assert results["number += 1 -> pass"] == ["hung", ""]


@pytest.mark.slow
def test_tests_that_fail_without_a_mutant_can_kill_none(tmp_path: Path, root: Path) -> None:
    done = run(tmp_path, root, _TESTS.replace("== 4", "== 5"))
    assert "clipping.py: its tests fail without a mutant" in done.stderr
    assert done.stdout == ""


def mutant(line: int, change: str = "1 -> 2") -> Mutant:
    return Mutant("m.py", line, line, "", f"line {line}", change, 0, "1", "2")


def killed(count: int) -> list[Result]:
    return [Result(mutant(line), "killed", "test_m", "", 1.0) for line in range(1, count + 1)]


def test_a_survivor_that_is_not_listed_is_a_fault() -> None:
    found = [*killed(9), Result(mutant(50), "survived", "", "", 1.0)]
    keys = {one.mutant.key for one in found}
    (fault,) = report.judge(found, keys, set(), 0.9)
    assert fault.startswith("1 mutants survive and are not in tests/mutants/survivors.py")
    assert report.judge(found, keys, {("m.py", "", "line 50", "1 -> 2")}, 0.9) == []


def test_too_few_killed_is_a_fault_even_if_all_survivors_are_listed() -> None:
    found = [*killed(8), Result(mutant(50), "survived", "", "", 1.0)]
    keys = {one.mutant.key for one in found}
    assert report.judge(found, keys, {mutant(50).key}, 0.9) == [
        "90 % of the mutants must be killed, 88.9 % were"
    ]


def test_a_listed_survivor_that_is_killed_or_gone_is_a_fault() -> None:
    found = killed(2)
    keys = {one.mutant.key for one in found}
    listed = {
        ("m.py", "", "line 2", "1 -> 2"),
        ("m.py", "", "line 3", "1 -> 2"),
        ("n.py", "", "line", "a"),
    }
    assert report.judge(found, keys, listed, 0.9) == [
        "m.py: survivors.py lists a mutant that was killed: ('', 'line 2', '1 -> 2')",
        "m.py: survivors.py lists a mutant that is no longer: ('', 'line 3', '1 -> 2')",
    ]


def test_the_table_has_a_row_a_module_and_one_of_all() -> None:
    found = [*killed(3), Result(mutant(50), "survived", "", "", 1.0)]
    assert report.table(found, {mutant(50).key}).splitlines()[2:] == [
        "| `m.py` | 4 | 3 (75 %) | 0 | 1 | 0 | 4 |",
        "| all | 4 | 3 (75 %) | 0 | 1 | 0 | 4 |",
    ]
