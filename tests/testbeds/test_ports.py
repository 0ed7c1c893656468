"""Ports that a test process holds."""

import subprocess
import sys

from testbeds.processes import ROOT


def test_ports_that_are_held_to_the_end_of_the_process_are_closed_there() -> None:
    code = "from testbeds.ports import *; free_ports(2); free_ports_in_a_row(3)"
    words = [sys.executable, "-X", "dev", "-W", "error", "-c", code]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
