"""Draws what `make demo` shows on a terminal: `python -m tests.terminal_pictures`.

Each picture is of a real run, in a folder of its own, and takes about two minutes on two cores.
"""

import io
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.text import Text

from testbeds.terminal import Terminal
from tests.shell import ROOT, make_workspace, run

_PICTURES = ROOT / "docs" / "pictures"
_HALF = 141  # of the demo's steps
_STEP = re.compile(r"^step (\d+)/282 .* left ", re.MULTILINE)
_SECS = 600
_LINES = 18  # of the terminal
_COLOURS = {"brown": "yellow", "default": None}  # pyte's names -> rich's


def main() -> None:
    """Writes docs/pictures/live-table.svg and live-table-60.svg."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = make_workspace(Path(folder))
        run(f"{sys.executable} -m data_prep --source synthetic --out demo/data", workspace)
        for columns, name in ((100, "live-table"), (60, "live-table-60")):
            run("rm -rf demo/output", workspace)
            with _demo(workspace, columns) as terminal:
                terminal.wait_for(lambda: _is_half_done(terminal), "half of the steps", _SECS)
                _draw(_styled(terminal)[-_LINES:], columns, _PICTURES / f"{name}.svg")


def _demo(workspace: Path, columns: int) -> Terminal:
    """Starts the part of `make demo` that follows the set-up and the records."""
    words = ["make", "--dry-run", "demo"]
    shown = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    commands = shown.stdout[shown.stdout.rindex("\n", 0, shown.stdout.index("launch up")) + 1 :]
    commands = commands.replace(" -- ", " --state-dir runs -- ", 1)
    return Terminal(["bash", "-c", commands], columns, _LINES, cwd=workspace)


def _is_half_done(terminal: Terminal) -> bool:
    found = _STEP.search("\n".join(terminal.shown))
    return bool(found) and int(found[1]) >= _HALF  # type: ignore[index]


def _styled(terminal: Terminal) -> list[Text]:
    """Returns the lines above the screen and those on it, with their colours."""
    screen = terminal.screen
    lines = []
    for row in [*screen.history.top, *(screen.buffer[i] for i in range(screen.lines))]:
        chars = [row[column] for column in range(screen.columns)]
        runs = itertools.groupby(chars, key=lambda char: (char.fg, char.bold))
        text = Text.assemble(
            *(
                ("".join(char.data for char in run), Style(color=_COLOURS.get(fg, fg), bold=bold))
                for (fg, bold), run in runs
            )
        )
        text.rstrip()
        lines.append(text)
    while lines and not lines[-1].plain:
        lines.pop()
    return lines


def _draw(lines: Sequence[Text], columns: int, path: Path) -> None:
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    for line in [*lines, Text()]:  # The picture cuts the last line.
        console.print(line, soft_wrap=True)
    console.save_svg(str(path), title="make demo", unique_id=path.stem)


if __name__ == "__main__":
    main()
