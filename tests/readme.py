"""Reads the commands, code blocks and links of README files, and which tests run the commands."""

import ast
import re
from pathlib import Path

_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SHELL_BLOCK = re.compile(r"^```(?:bash|sh|shell|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"""(?:\]\(|src=")(?!https?:)([^)#"]+(?:#[^)"]+)?)""")


def blocks(markdown: str) -> list[str]:
    """Returns all fenced code blocks in their order, with the fences."""
    return _BLOCK.findall(markdown)


def links(markdown: str) -> list[str]:
    """Returns the targets of links and pictures inside the repository, with `#section`."""
    return _LINK.findall(_BLOCK.sub("", markdown))


def commands(markdown: str) -> list[str]:
    """Returns the commands of all shell blocks, without comments, with continued lines joined."""
    found = []
    for block in _SHELL_BLOCK.findall(markdown):
        for line in block.replace("\\\n", " ").splitlines():
            command = " ".join(line.split())
            if command and not command.startswith("#"):
                found.append(command)
    return found


def marked_commands(tests: Path) -> dict[str, list[str]]:
    """Finds every `@pytest.mark.readme("command")`; returns command -> tests that run it."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.parse(source).body if "mark.readme" in source else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for command in _marks(node):
                    found.setdefault(command, []).append(f"{path.name}::{node.name}")
    return found


def _marks(function: ast.FunctionDef) -> list[str]:
    return [
        str(mark.args[0].value)
        for mark in function.decorator_list
        if isinstance(mark, ast.Call)
        and ast.unparse(mark.func) == "pytest.mark.readme"
        and isinstance(mark.args[0], ast.Constant)
    ]
