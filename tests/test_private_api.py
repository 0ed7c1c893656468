"""Private API of TensorFlow and Estimator is used in one room only, `cifar10/tf_internals`.

Private API that only tests need is used in `tests/cifar10/tf_internals`. The tests there also find
subclasses that use private names of TensorFlow's base classes, since finding them needs TensorFlow.
"""

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOMS = ("cifar10/tf_internals/", "tests/cifar10/tf_internals/")
PUBLIC = ("tensorflow", "tensorflow.compat.v1")
# Public names in spite of the underscore: os._exit, and those of a NamedTuple; and those by which
# programs list the arguments of a parser, since argparse has no others.
NO_PRIVATE_NAMES = {"_exit", "_asdict", "_fields", "_make", "_replace"}
NO_PRIVATE_NAMES |= {"_actions", "_SubParsersAction"}
_PRIVATE = re.compile(r"_[A-Za-z]\w*")
# What every file with a violation has; to parse all others takes seconds.
_SUSPECT = re.compile(r"""(?<!self)\._[A-Za-z]|["']_[A-Za-z]|tensorflow(_estimator|\.(?!compat))""")


def violations(root: Path, path: Path) -> list[str]:
    """Returns the private API of other code that a file uses, as `line: name`."""
    source = path.read_text(encoding="utf-8")
    if not _SUSPECT.search(source):
        return []
    tree = ast.parse(source)
    own = private_names(tree) | _known(root, tree) | NO_PRIVATE_NAMES
    found = [
        f"{line}: import {name}"
        for line, name in _imports(tree)
        if name.split(".")[0] in ("tensorflow", "tensorflow_estimator") and name not in PUBLIC
    ]
    return found + [f"{line}: {name}" for line, name in _uses(tree) if name not in own]


def private_names(tree: ast.AST) -> set[str]:
    """Returns the private names of a module: functions, classes, variables and attributes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= {node.attr} if getattr(node.value, "id", "") == "self" else set()
    return {name for name in names if _PRIVATE.fullmatch(name)}


def _uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields (line, private name) for `x._name` and for calls such as `getattr(x, "_name")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _PRIVATE.fullmatch(node.attr):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and _name_of(node.func).endswith("attr"):
            for argument in node.args[1:2]:
                if isinstance(argument, ast.Constant) and _PRIVATE.fullmatch(str(argument.value)):
                    yield node.lineno, str(argument.value)


def _name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields (line, module); for `from a import b`, a and, unless a is TensorFlow's, a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            if not node.module.startswith("tensorflow"):
                for alias in node.names:
                    yield node.lineno, f"{node.module}.{alias.name}"


def _known(root: Path, tree: ast.AST) -> frozenset[str]:
    """Returns the private names of the modules of this project that a module imports."""
    names: set[str] = set()
    for _, module in _imports(tree):
        path = root.joinpath(*module.split(".")).with_suffix(".py")
        if path.is_file():
            names |= _names_in(path)
    return frozenset(names)


@functools.cache
def _names_in(path: Path) -> set[str]:
    return private_names(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.slow
def test_private_api_is_used_in_its_room_alone(root: Path) -> None:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    files = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True).stdout
    found = {}
    for name in files.splitlines():
        if name.startswith(ROOMS) or not (root / name).is_file():
            continue
        wrong = violations(root, root / name)
        if wrong:
            found[name] = wrong
    assert found == {}
