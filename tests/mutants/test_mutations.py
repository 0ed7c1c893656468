"""Which faults are made, and that what is said of them is true of the code as it is."""

from pathlib import Path

import pytest

from tests.mutants.mutations import mutants_of
from tests.mutants.survivors import SURVIVORS
from tests.mutants.targets import TARGETS

_MODULE = '''"""A docstring of 3 words."""

LIMIT: "int" = 7


def clipped(number):
    return min(number, LIMIT)


def even(number):
    while number % 2:
        number += 1
    return number


def untested():
    return 5
'''


def changes(source: str) -> list[str]:
    return [mutant.change for mutant in mutants_of("m.py", source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ["a < b -> a <= b"]),
        ("a not in b", ["a not in b -> a in b"]),
        (
            "(a * 2) + b",
            ["(a * 2) + b -> (a * 2)", "a * 2 -> a / 2", "2 -> 3", "(a * 2) + b -> (a * 2) - b"],
        ),
        ("a and b or c", ["a and b -> (a) or (b)", "a and b or c -> (a and b) and (c)"]),
        ("not a", ["not a -> (a)"]),
        ("-1", ["-1 -> (1)"]),
        ("True", ["True -> False"]),
        ("0.5", ["0.5 -> 1.0"]),
        ("'zeros'", ["'zeros' -> \"zeros_\""]),
        ("'a text of some words'", []),
        ("f'{a + 1} of {b}'", []),
        ("a[1:b]", ["1 -> 2", "1 -> nothing", "b -> nothing"]),
        ("[0, 0]", ["0 -> 1", "0 -> 1 #2"]),
        ("b if a else c", ["a -> False", "a -> True"]),
        ("[b for b in c if a]", ["a -> True"]),
        ("tf.reduce_mean(a)", ["tf.reduce_mean(a) -> (a)", "reduce_mean -> reduce_sum"]),
        ("f(a, key=b)", ["f(a, key=b) -> (a)", "f(a, key=b) -> f(a)"]),
        ("f(config, a)", ["f(config, a) -> (a)"]),
        ("Made(a)", []),
        ("_Made(a)", []),
        ("range(a)", []),
    ],
)
def test_faults_in_expressions(source: str, expected: list[str]) -> None:
    assert changes(f"x = {source}") == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a.b = c", ["a.b = c -> pass"]),
        ("a += b", ["a += b -> pass"]),
        ("f(a)", ["f(a) -> pass"]),
        ("raise E('x')", ["raise E('x') -> pass"]),
        ("if a: b", ["a -> False", "a -> True"]),
        ("while a:\n  break", ["a -> False", "break -> continue"]),
        ("with tf.control_dependencies([a]): b", ["[a] -> []"]),
        ("with tf.device(a + 1): b", []),
        ("def f(a: 'int' = 3) -> 'x':\n  'doc'\n  return a", ["3 -> 4"]),
        ("class A:\n  def __repr__(self):\n    return a + 1", []),
    ],
)
def test_faults_in_statements(source: str, expected: list[str]) -> None:
    assert changes(source) == expected


def test_a_mutant_is_the_source_with_one_change() -> None:
    (mutant,) = (one for one in mutants_of("m.py", _MODULE) if one.change == "7 -> 8")
    assert (mutant.line, mutant.place, mutant.text) == (3, "", 'LIMIT: "int" = 7')
    assert mutant.applied_to(_MODULE) == _MODULE.replace("= 7", "= 8")


def test_a_mutant_knows_the_function_it_is_in() -> None:
    source = "class A:\n  def f(self):\n    def g():\n      return 1\n    return 2\n"
    assert [one.place for one in mutants_of("m.py", source)] == ["A.f.g", "A.f"]


def test_every_mutant_compiles(root: Path) -> None:
    for module in TARGETS:
        source = (root / module).read_text(encoding="utf-8")
        for mutant in mutants_of(module, source):
            compile(mutant.applied_to(source), module, "exec")


def test_every_target_has_its_tests(root: Path) -> None:
    assert [
        test for tests in TARGETS.values() for test in tests if not (root / test).exists()
    ] == []


def test_every_listed_survivor_is_a_mutant_and_has_a_reason(root: Path) -> None:
    keys = {
        mutant.key
        for module in TARGETS
        for mutant in mutants_of(module, (root / module).read_text(encoding="utf-8"))
    }
    assert [one for one in SURVIVORS if one.key not in keys] == []
    assert [one for one in SURVIVORS if len(one.reason.split()) < 5] == []
