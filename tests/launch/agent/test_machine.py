"""What the machine of an agent does with signals."""

import signal
import subprocess
import sys

_AGENT = """
import os, signal
from launch.agent.machine import Machine

asked = []
machine = Machine()
machine.watch_signals(lambda: asked.append(True))
os.kill(os.getpid(), signal.SIGCHLD)
machine.wait(0)
os.kill(os.getpid(), signal.SIGTERM)
print(len(asked))
machine.wait(5)
print(len(asked))
machine.wait(0)
print(len(asked))
"""


def test_sigterm_waits_until_the_agent_does_nothing_else() -> None:
    """It may come in the middle of the writing of a message."""
    done = subprocess.run([sys.executable, "-c", _AGENT], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"0\n1\n1\n"


_STARTS = """
import os, signal, subprocess, sys
from launch.agent.machine import Machine

machine = Machine()
machine.watch_signals(lambda: print("asked to end"))
os.kill(os.getpid(), signal.SIGINT)
os.kill(os.getpid(), signal.SIGHUP)
machine.wait(0)
subprocess.run([sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT))"])
"""


def test_ctrl_c_does_not_reach_the_agent_but_a_task_can_take_it() -> None:
    done = subprocess.run([sys.executable, "-c", _STARTS], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode() == f"{signal.default_int_handler}\n"
