"""Makes records, and runs cifar10_main.py as a user does: in a process of its own."""

import contextlib
import io
import pathlib
import subprocess
from typing import Optional

from data_prep import cli
from testbeds.processes import command, environment

_OWN = """from cifar10 import main, models
from cifar10.host.process import leave


class Own(type(models.find("mlp"))):
    name = "own"

    def title(self, config):
        return "a model of one's own"


models.register(Own())
leave(main.main())
"""


def write_own(folder: pathlib.Path) -> pathlib.Path:
    """Writes a script that trains with `--model own`, and returns its path."""
    folder.mkdir(exist_ok=True)
    (folder / "own.py").write_text(_OWN)
    return folder / "own.py"


def make_records(folder: pathlib.Path, size: int) -> pathlib.Path:
    """Makes synthetic records: `size` images for training and validation, and a fifth for eval."""
    words = ["--source=synthetic", f"--out={folder}", f"--synthetic-size={size}"]
    with contextlib.redirect_stdout(io.StringIO()):
        assert cli.main(words) == 0
    return folder


def run(
    *arguments: object, cwd: pathlib.Path, tf_config: Optional[str] = None
) -> "subprocess.CompletedProcess[str]":
    """Runs the program to its end in `cwd`, with TF_CONFIG set if `tf_config` is given."""
    variables = {} if tf_config is None else {"TF_CONFIG": tf_config}
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=240,
    )
