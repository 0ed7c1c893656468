"""What a person sees of a running job on a terminal, drawn by a terminal emulator."""

import re
import sys

from testbeds.terminal import Terminal
from tests.launch.launcher import ROOT, TWO, Launcher


def has_table(lines: "tuple[str, ...] | list[str]") -> bool:
    return any(line.startswith("task ") for line in lines)


def test_a_terminal_is_quiet_and_ctrl_c_ends_with_what_is_saved(launcher: Launcher) -> None:
    columns = 60
    saves = "master/0:saves=output/model.ckpt-7"
    words = launcher.up_words(TWO, "--", "steps=1000", saves)
    command = [sys.executable, "-m", "launch", "up", *words]
    with Terminal(command, columns, cwd=ROOT) as terminal:
        terminal.wait_for(
            lambda: (
                re.search(r"━─+  epoch 0.1/1  loss 1.9  .*s elapsed", "\n".join(terminal.shown))
                and not has_table(terminal.shown)  # once every task runs
            ),
            "a speed alone",
        )
        assert any(has_table(frame) for frame in terminal.frames)  # while the job started
        terminal.type("\x03")
        terminal.wait_for_words("then Enter:")
        terminal.type("s\r")
        assert terminal.finish() == 130
        assert terminal.all_lines.count("saved output/model.ckpt-7") == 1
        assert terminal.all_lines[-1] == "exit code 130: stopped by SIGINT"
        assert not has_table(terminal.all_lines)
        assert not [line for line in terminal.all_lines if re.search("elapsed|loss", line)]
        assert not [line for line in terminal.all_lines if line.startswith("[worker/0")]
        assert "Ctrl-C: [l]eave running, [s]top (saves first), [c]ontinue?" in terminal.all_lines
    launcher.assert_nothing_left()
