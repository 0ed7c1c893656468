"""Starts an agent on a host: a short command reads the agent's modules from standard input.

The host needs nothing but Python. The command line needs no further quoting: its only variable
parts are the Python command and the run's id, which contain no characters special to a shell.
"""

import importlib.resources
from functools import lru_cache

from launch.agent.processes import AGENT_WORD

# The modules of the agent, each after those that it imports.
_MODULES = (
    "protocol",
    "bounded_run",
    "processes",
    "logs",
    "tcp_ports",
    "task_process",
    "machine",
    "containers",
    "aside",
    "tasks",
    "host_facts",
    "main",
)

# With -I and -S, no code of the user or the site runs first, and Python starts faster.
FIRST = "import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"

_LOADER = """\
import sys
if sys.version_info < (3, 9):
    sys.exit("the agent needs Python 3.9 or newer, here is " + sys.version.split()[0])
import types
for name, source in SOURCES:
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
    exec(compile(source, name, "exec"), module.__dict__)
sys.modules["launch.agent.main"].Agent(sys.argv[-1]).run()
"""


def command(python: str, run_id: str) -> list[str]:
    """Returns the command that starts an agent; it reads `payload` from its standard input.

    Args:
      python: the command or path of a Python 3.9 or newer.
      run_id: the id of the run, which process lists then show.
    """
    return [python, "-I", "-S", "-c", FIRST, AGENT_WORD, run_id]


def remote_command(python: str, run_id: str) -> str:
    """Returns the same command as one line that any login shell understands."""
    return f"exec {python} -I -S -c '{FIRST}' {AGENT_WORD} {run_id}"


@lru_cache(maxsize=1)
def payload() -> bytes:
    """Returns the source of the agent, after a line with its length in bytes."""
    folder = importlib.resources.files("launch.agent")
    sources = [("launch", ""), ("launch.agent", "")]
    for name in _MODULES:
        sources.append((f"launch.agent.{name}", (folder / f"{name}.py").read_text("utf-8")))
    code = f"SOURCES = {sources!r}\n{_LOADER}".encode()
    return b"%d\n%s" % (len(code), code)
