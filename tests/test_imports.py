"""Who may import whom. The rules live here; docs/architecture.md shows the same table."""

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

STDLIB, NO_TENSORFLOW, ANYTHING = "standard library", "anything but TensorFlow", "anything"
LATE = "anything; TensorFlow in functions only"
OURS = ("cifar10", "cifar10_main", "data_prep", "launch", "benchmarks", "tests")


@dataclass(frozen=True)
class Rule:
    """What a room may import: of ours (patterns of module names), and of the world."""

    room: str
    ours: tuple[str, ...]
    world: str


# The first rule whose room matches a module's name is the module's.
RULES = (
    Rule("cifar10.__init__", (), STDLIB),
    Rule("cifar10.schema", (), STDLIB),
    Rule("cifar10.errors", (), STDLIB),
    Rule("cifar10.cpu", (), STDLIB),
    Rule("cifar10.kernels.library", (), LATE),
    Rule("cifar10.kernels.build", ("cifar10.cpu", "cifar10.kernels*"), LATE),
    Rule("cifar10.recipes", ("cifar10.schema",), STDLIB),
    Rule("cifar10.config_checks", ("cifar10.schema", "cifar10.errors"), STDLIB),
    Rule(
        "cifar10.config",
        ("cifar10.config_checks", "cifar10.recipes", "cifar10.schema", "cifar10.errors"),
        STDLIB,
    ),
    Rule("cifar10.rates", ("cifar10.config",), STDLIB),
    Rule("cifar10.flags", ("cifar10.config", "cifar10.recipes", "cifar10.errors"), STDLIB),
    Rule("cifar10.stopping", ("cifar10.errors",), STDLIB),
    Rule("cifar10.cluster", ("cifar10.errors",), STDLIB),
    Rule("cifar10.cluster_shape", ("cifar10.cluster", "cifar10.errors"), STDLIB),
    Rule("cifar10.tf_config", ("cifar10.errors",), STDLIB),
    Rule(
        "cifar10.cluster_config",
        ("cifar10.cluster*", "cifar10.tf_config", "cifar10.config", "cifar10.errors"),
        STDLIB,
    ),
    Rule("cifar10.own_address", ("cifar10.cluster", "cifar10.errors"), STDLIB),
    Rule("cifar10.watch", ("cifar10.errors", "cifar10.stopping"), STDLIB),
    Rule("cifar10.cpu_setting", ("cifar10.config",), STDLIB),
    Rule("cifar10.autotune.place", ("cifar10.config",), STDLIB),
    Rule("cifar10.autotune.candidates", ("cifar10.config", "cifar10.cpu_setting"), STDLIB),
    Rule("cifar10.autotune.sample", ("cifar10.config", "cifar10.cpu_setting"), STDLIB),
    Rule("cifar10.autotune.last_words", (), STDLIB),
    Rule(
        "cifar10.autotune.children",
        ("cifar10.autotune.last_words", "cifar10.config", "cifar10.stopping"),
        STDLIB,
    ),
    Rule(
        "cifar10.autotune.ahead",
        (
            "cifar10.autotune.candidates",
            "cifar10.autotune.children",
            "cifar10.autotune.place",
            "cifar10.autotune.sample",
            "cifar10.config",
            "cifar10.cpu",
            "cifar10.cpu_setting",
            "cifar10.stopping",
        ),
        STDLIB,
    ),
    Rule("cifar10.main", ("cifar10.*",), LATE),
    Rule("cifar10.progress_hook", ("cifar10.*",), ANYTHING),
    Rule("cifar10.progress*", ("cifar10.schema", "cifar10.progress*"), NO_TENSORFLOW),
    Rule("cifar10.report*", ("cifar10.schema", "cifar10.report*"), NO_TENSORFLOW),
    Rule("cifar10.*", ("cifar10.*",), ANYTHING),
    Rule("cifar10_main", ("cifar10.main",), STDLIB),
    Rule("data_prep.*", ("data_prep.*", "cifar10.schema"), NO_TENSORFLOW),
    Rule("launch.*", ("launch.*",), NO_TENSORFLOW),
    Rule("benchmarks.*", ("cifar10.*", "data_prep.*", "launch.*", "benchmarks.*"), ANYTHING),
)


def rule_for(module: str) -> Rule:
    """The rule of a module; LookupError for a module in no room."""
    for rule in RULES:
        if fnmatchcase(module, rule.room):
            return rule
    raise LookupError(f"{module}: no rule; add its room to RULES and to docs/architecture.md")


def violations(module: str, source: str, modules: frozenset[str]) -> list[str]:
    """Names each import in `source` that the rule of `module` forbids."""
    rule = rule_for(module)
    found = []
    for line, target in _imports(module, source, modules):
        top = target.split(".")[0]
        if top in OURS:
            allowed = any(fnmatchcase(target, pattern) for pattern in rule.ours)
        elif rule.world == STDLIB:
            allowed = _is_in_the_standard_library(top)
        else:
            allowed = rule.world in (ANYTHING, LATE) or not top.startswith("tensor")
        if not allowed:
            found.append(f"{module}:{line} imports {target}, which {rule.room} may not")
    return found


def _is_in_the_standard_library(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and "-packages" not in str(spec)


def _imports(module: str, source: str, modules: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yields (line, module imported); a package itself is `package.__init__`."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.stmt, ast.expr)):
            continue
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _base(module, node)
            targets = [
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base
                for alias in node.names
            ]
        elif isinstance(node, ast.Call) and _is_dynamic_import(node.func) and node.args:
            if isinstance(node.args[0], ast.Constant):
                targets = [str(node.args[0].value)]
            else:
                targets = ["tests.an_import_by_a_computed_name"]  # Nobody may: no rule reads it.
        for target in targets:
            yield node.lineno, f"{target}.__init__" if f"{target}.__init__" in modules else target


def _base(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.split(".")[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def _is_dynamic_import(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")


def _modules(root: Path) -> dict[str, Path]:
    paths = [root / "cifar10_main.py"] if (root / "cifar10_main.py").exists() else []
    for room in ("cifar10", "data_prep", "launch", "benchmarks"):
        paths += sorted((root / room).rglob("*.py"))
    return {".".join(path.relative_to(root).with_suffix("").parts): path for path in paths}


def test_every_module_imports_only_what_its_room_may(root: Path) -> None:
    modules = _modules(root)
    assert "cifar10.schema" in modules
    found = []
    for module, path in modules.items():
        found += violations(module, path.read_text(encoding="utf-8"), frozenset(modules))
    assert found == []


KNOWN = frozenset(
    ["cifar10.__init__", "cifar10.schema", "cifar10.config", "cifar10.train", "data_prep.cli"]
)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("data_prep.cli", "import cifar10.config"),
        ("data_prep.cli", "from cifar10 import config"),
        ("data_prep.cli", "def late():\n    import tensorflow as tf"),
        ("data_prep.cli", "import importlib\nimportlib.import_module('tensorflow.io')"),
        ("data_prep.cli", "import importlib\nimportlib.import_module(name)"),
        ("cifar10.train", "import launch"),
        ("cifar10.schema", "import numpy"),
        ("cifar10.schema", "from . import config"),
        ("cifar10.report", "from tensorboard import util"),
    ],
)
def test_an_import_against_the_direction_is_found(module: str, source: str) -> None:
    assert len(violations(module, source, KNOWN)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("data_prep.cli", "from cifar10 import schema\nimport numpy\nfrom . import cli"),
        ("cifar10.train", "import tensorflow.compat.v1 as tf\nfrom cifar10 import config"),
        ("cifar10.config", "import dataclasses\nfrom cifar10.schema import SPLITS"),
    ],
)
def test_an_import_along_the_direction_is_not_found(module: str, source: str) -> None:
    assert violations(module, source, KNOWN) == []


def test_a_module_in_no_room_is_refused() -> None:
    with pytest.raises(LookupError, match="no rule"):
        violations("scripts.new", "", KNOWN)


def test_rooms_without_tensorflow_load_without_it(root: Path) -> None:
    """The table holds for what those modules import in turn, too."""
    light = [
        module.replace(".__init__", "")
        for module in _modules(root)
        if rule_for(module).world != ANYTHING and not module.endswith("__main__")
    ]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
    code += "print([name for name in sys.modules if name.split('.')[0] == 'tensorflow'])"
    loaded = subprocess.run(
        [sys.executable, "-c", code, *light], cwd=root, capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[]"


def test_the_architecture_page_shows_these_rules(root: Path) -> None:
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    for rule in RULES:
        ours = ", ".join(f"`{name}`" for name in rule.ours) or "nothing"
        row = f"| `{rule.room}` | {ours} | {rule.world} |"
        assert row in page, f"docs/architecture.md has no row {row}"


def test_the_architecture_page_names_every_module_of_cifar10_once(root: Path) -> None:
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.split("| module | its one job |\n|---|---|\n")[1].split("\n\n")[0]
    named = re.findall(r"`([^`]+)`", "".join(row.split("|")[1] for row in table.splitlines()))
    folder = root / "cifar10"
    families = tuple(name for name in named if name.endswith("*"))
    expected = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
    expected += [f"{path.parent.name}/" for path in folder.glob("*/__init__.py")]
    for name in expected:
        in_family = any(fnmatchcase(name, family) for family in families)
        assert named.count(name) == 1 or (in_family and name not in named), name
    assert {name for name in named if name not in families} <= set(expected)
