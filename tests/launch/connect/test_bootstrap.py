"""How an agent gets to a host."""

import ast
import re
from pathlib import Path

from launch.connect import bootstrap


def test_the_remote_command_needs_no_quoting_in_any_shell() -> None:
    line = bootstrap.remote_command("python3", "20260101-000000-abcd")
    assert line == (
        "exec python3 -I -S -c 'import sys; "
        "exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))' "
        "launch-agent 20260101-000000-abcd"
    )


def test_every_module_of_the_agent_is_sent_after_those_that_it_imports(root: Path) -> None:
    folder = root / "launch" / "agent"
    others = {"__init__", "host_setup"}  # the latter is a program by itself
    modules = sorted(path.stem for path in folder.glob("*.py") if path.stem not in others)
    assert sorted(bootstrap._MODULES) == modules
    for position, name in enumerate(bootstrap._MODULES):
        tree = ast.parse((folder / f"{name}.py").read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("launch"):
                needed = re.findall(r"launch\.agent\.(\w+)", node.module or "")
                needed = needed or [alias.name for alias in node.names]
                assert set(needed) <= set(bootstrap._MODULES[:position])


def test_the_payload_says_its_length() -> None:
    length, _, code = bootstrap.payload().partition(b"\n")
    assert int(length) == len(code)
    compile(code, "agent", "exec")
