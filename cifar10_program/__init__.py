"""What the three programs share.

The version and the names of the programs are here; the modules `streams`, `paths` and
`common_flags` hold the rest.

Standard library only, but that `--print-completion` imports shtab. `cifar10`, `data_prep` and
`launch` import this package, and it imports none of them.
"""

import os
import sys

# The only place of the version: pyproject.toml reads it from here.
VERSION = "0.1.0"
PACKAGE = "cifar10-estimator-pipeline"
VERSION_LINE = f"{PACKAGE} {VERSION}"

TRAIN, DATA, LAUNCH = "cifar10-train", "cifar10-data", "cifar10-launch"
# How people start the programs in a checkout, where those commands are not installed.
_IN_A_CHECKOUT = {
    TRAIN: "python cifar10_main.py",
    DATA: "python -m data_prep",
    LAUNCH: "python -m launch",
}
# Whether this is an installation (`pip install .`) and not a checkout, which alone has that file.
_ROOT = os.path.dirname(os.path.dirname(__file__))
IS_INSTALLED = not os.path.exists(os.path.join(_ROOT, "cifar10_main.py"))


def started_as(command: str) -> str:
    """Returns the words with which people start a program: its command or those of a checkout.

    A program names the others in the way that it was started itself.

    Args:
      command: TRAIN, DATA or LAUNCH.
    """
    by_command = os.path.basename(sys.argv[0]) in _IN_A_CHECKOUT
    return command if by_command or IS_INSTALLED else _IN_A_CHECKOUT[command]


def command_line() -> list[str]:
    """Returns the words of the command that runs in this process, for people to repeat."""
    program = os.path.basename(sys.argv[0])
    if program in _IN_A_CHECKOUT:
        return [program, *sys.argv[1:]]
    if program == "__main__.py":
        return ["python", "-m", os.path.basename(os.path.dirname(sys.argv[0])), *sys.argv[1:]]
    return ["python", *sys.argv]
