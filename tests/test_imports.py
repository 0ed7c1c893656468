"""Every module imports only what the table in `tests/import_table.py` allows."""

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.import_table import ANYTHING, COMMON, ENTRIES, LATE, PACKAGES, SHARED, STDLIB, entry_of

OURS = (*PACKAGES, COMMON, "cifar10_main", "benchmarks", "testbeds", "tests")


Imports = dict[str, list[tuple[int, str]]]  # module -> (line, module that it imports)


def violations(module: str, imports: Sequence[tuple[int, str]]) -> list[str]:
    """Returns a message for each import that `module` must not have."""
    entry = entry_of(module)
    found = []
    for line, target in imports:
        top = target.split(".")[0]
        if top == COMMON or target in SHARED.get(entry.package, ()):
            allowed = True
        elif top in OURS:
            allowed = top == entry.package and entry_of(target).name in (entry.name, *entry.ours)
        elif entry.world == STDLIB:
            allowed = _is_in_the_standard_library(top)
        else:
            allowed = entry.world in (ANYTHING, LATE) or not top.startswith("tensor")
        if not allowed:
            found.append(f"{module}:{line} imports {target}, which {entry.name} may not")
    return found


def _is_in_the_standard_library(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and "-packages" not in str(spec)


def _imports(module: str, source: str, modules: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yields (line, module imported), for types only too; a package is `package.__init__`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _base(module, node)
            targets = [_module(base, alias.name, modules) for alias in node.names]
        else:
            continue
        for target in targets:
            yield node.lineno, f"{target}.__init__" if f"{target}.__init__" in modules else target


def _module(base: str, name: str, modules: frozenset[str]) -> str:
    full = f"{base}.{name}"
    return full if {full, f"{full}.__init__"} & modules else base


def _base(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.split(".")[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def _modules(root: Path, packages: Sequence[str] = PACKAGES) -> dict[str, Path]:
    paths = [path for package in packages for path in sorted((root / package).rglob("*.py"))]
    return {".".join(path.relative_to(root).with_suffix("").parts): path for path in paths}


@pytest.fixture(scope="module")
def imported(root: Path) -> Imports:
    """What each module imports, as (line, module)."""
    modules = _modules(root)
    return {
        module: list(_imports(module, path.read_text(encoding="utf-8"), frozenset(modules)))
        for module, path in modules.items()
    }


def test_every_module_imports_only_what_the_table_allows(imported: Imports) -> None:
    assert "cifar10.schema" in imported
    found = []
    for module, imports in imported.items():
        found += violations(module, imports)
    assert found == []


def test_the_table_allows_no_more_than_is_imported(imported: Imports) -> None:
    """Otherwise the table would not show how the packages depend on each other."""
    used: dict[str, set[str]] = {entry.name: set() for entry in ENTRIES}
    for module, imports in imported.items():
        ours = [target for _, target in imports if target.split(".")[0] == module.split(".")[0]]
        used[entry_of(module).name] |= {entry_of(target).name for target in ours}
    unused = {entry.name: set(entry.ours) - used[entry.name] for entry in ENTRIES}
    assert {name: names for name, names in unused.items() if names} == {}


def test_the_modules_of_a_package_import_each_other_in_no_circle(imported: Imports) -> None:
    waiting = {
        module: {target for _, target in imports if target in imported and target != module}
        for module, imports in imported.items()
    }
    while waiting:
        ready = {module for module, targets in waiting.items() if not targets & set(waiting)}
        assert ready, f"a circle, or modules above one: {sorted(waiting)}"
        waiting = {module: targets for module, targets in waiting.items() if module not in ready}


def test_the_kernels_have_one_entry(imported: Imports) -> None:
    entry = "cifar10.kernels.__init__"
    found = [
        f"{module}:{line} imports {target}"
        for module, imports in imported.items()
        for line, target in imports
        if target.startswith("cifar10.kernels.") and target != entry
    ]
    assert found == []
    assert any(target == entry for _, target in imported["cifar10.ops.operations"])


@pytest.mark.parametrize(
    ("folder", "others"), [("testbeds", "tests|benchmarks"), ("benchmarks", "tests")]
)
def test_what_tests_share_imports_nothing_of_theirs(root: Path, folder: str, others: str) -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in (root / folder).rglob("*.py")}
    assert len(sources) > 5
    line = re.compile(rf"^ *(?:from|import) (?:{others})\b", re.MULTILINE)
    assert [path.name for path, source in sources.items() if line.search(source)] == []


def test_the_stage_of_the_image_that_compiles_has_all_that_its_modules_import(root: Path) -> None:
    modules = _modules(root, (*PACKAGES, COMMON))
    dockerfile = (root / "Dockerfile").read_text(encoding="utf-8")
    stage = dockerfile.partition("FROM base AS kernels")[2].partition("FROM base")[0]
    copied = [
        root / source
        for words in re.findall(r"^COPY (.+) \S+$", stage, re.MULTILINE)
        for source in words.split()
    ]
    assert [source for source in copied if not source.exists()] == []
    there = {
        module
        for module, path in modules.items()
        if any(source in (path, *path.parents) for source in copied)
    }
    assert "cifar10.kernels.build" in there
    missing = {
        target
        for module in there
        for _, target in _imports(module, modules[module].read_text("utf-8"), frozenset(modules))
        if target in modules and target not in there
    }
    assert missing == {"cifar10.api"}  # imported when it is used


def test_modules_without_tensorflow_load_without_it(root: Path) -> None:
    """Applies the table to indirect imports, too."""
    light = [
        module.replace(".__init__", "")
        for module in _modules(root)
        if entry_of(module).world != ANYTHING and not module.endswith("__main__")
    ]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
    code += "print([name for name in sys.modules if name.split('.')[0] == 'tensorflow'])"
    words = [sys.executable, "-c", code, *light, "cifar10.kernels.build"]
    loaded = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_the_architecture_page_shows_every_package(root: Path) -> None:
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = [
        f"| `{entry.name}/` | {entry.job} |"
        for entry in ENTRIES
        if (root / entry.name.replace(".", "/") / "__init__.py").is_file()
    ]
    assert [row for row in rows if row not in page.splitlines()] == []
