"""Private API of TensorFlow and Estimator is used in one module only, `cifar10/tf_internals.py`.

Private API that only tests need is used in `tests/cifar10/tf_internals`. The tests there also find
subclasses that use private names of TensorFlow's base classes, since finding them needs TensorFlow.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ALLOWED = ("cifar10/tf_internals.py", "tests/cifar10/tf_internals/")
PUBLIC = ("tensorflow", "tensorflow.compat.v1")
# Public names in spite of the underscore: os._exit, and those of a NamedTuple; and those by which
# programs list the arguments of a parser, since argparse has no others.
NO_PRIVATE_NAMES = {"_exit", "_asdict", "_fields", "_make", "_replace"}
NO_PRIVATE_NAMES |= {"_actions", "_SubParsersAction"}
_PRIVATE = re.compile(r"_[A-Za-z]\w*")


def defined(tree: ast.AST) -> Iterator[str]:
    """Yields the private names of a module: functions, classes, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr if getattr(node.value, "id", "") == "self" else ""


def imported(tree: ast.AST) -> Iterator[str]:
    """Yields what a module imports, as the paths of modules of this project."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            base = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for name in (base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)):
                yield f"{name.replace('.', '/')}.py"


def used(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields (line, name) of `x._name`, of `getattr(x, "_name")`, and of TensorFlow's modules."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("attr"):
            names = [str(arg.value) for arg in node.args[1:2] if isinstance(arg, ast.Constant)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            is_tensorflow = name.split(".")[0] in ("tensorflow", "tensorflow_estimator")
            if _PRIVATE.fullmatch(name) or (is_tensorflow and name not in PUBLIC):
                yield getattr(node, "lineno", 0), name


@pytest.mark.slow
def test_private_api_is_used_in_its_module_alone(root: Path) -> None:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    files = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True).stdout
    trees = {
        name: ast.parse((root / name).read_text(encoding="utf-8"))
        for name in files.splitlines()
        if (root / name).is_file()
    }
    names = {file: set(defined(tree)) for file, tree in trees.items()}
    found = []
    for file, tree in trees.items():
        if not file.startswith(ALLOWED):
            theirs = (names.get(module, set()) for module in imported(tree))
            ours = NO_PRIVATE_NAMES.union(names[file], *theirs)
            found += [f"{file}:{line}: {name}" for line, name in used(tree) if name not in ours]
    assert found == []
