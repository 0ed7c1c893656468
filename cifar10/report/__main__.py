"""Compares runs: `python -m cifar10.report OUTPUT_DIR OUTPUT_DIR --out page.html`."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Optional

from cifar10.errors import DamagedError, UserError, describe_error
from cifar10.report import render_comparison
from cifar10_program.paths import path_of
from cifar10_program.streams import log_error, one_line, open_streams


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Writes the page and returns the exit code."""
    open_streams()
    parser = argparse.ArgumentParser(prog="python -m cifar10.report", description=__doc__)
    parser.add_argument("folders", metavar="OUTPUT_DIR", nargs="+", type=path_of)
    parser.add_argument("--out", metavar="FILE", default="comparison.html", type=path_of)
    arguments = parser.parse_args(argv)
    try:
        page = render_comparison({folder: _result(folder) for folder in arguments.folders})
        with open(arguments.out, "w", encoding="utf-8") as file:
            file.write(page)
    except OSError as error:
        log_error(one_line(f"error: cannot write {arguments.out}: {error.strerror}"))
        return 2
    except UserError as error:
        line, code = describe_error(error)
        log_error(one_line(line))
        return code
    print(arguments.out)
    return 0


def _result(folder: str) -> Any:
    """Returns the content of the folder's result.json."""
    path = os.path.join(folder, "result.json")
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        [result[key] for key in ("model", "figures", "configuration", "history")]
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}; name --output-dir of a training that has "
            "ended"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(path, f"{type(error).__name__}: {error}") from error
    return result


if __name__ == "__main__":
    sys.exit(main())
