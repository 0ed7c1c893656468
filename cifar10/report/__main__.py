"""Compares runs: `python -m cifar10.report OUTPUT_DIR OUTPUT_DIR --out page.html`."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Optional

from cifar10.report import render_comparison
from cifar10_program.paths import path_of
from cifar10_program.streams import log_error, one_line, open_streams


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Writes the page, prints its path, and returns the exit code."""
    open_streams()
    parser = argparse.ArgumentParser(prog="python -m cifar10.report", description=__doc__)
    parser.add_argument("folders", metavar="OUTPUT_DIR", nargs="+", type=path_of)
    parser.add_argument("--out", metavar="FILE", default="comparison.html", type=path_of)
    arguments, results, path = parser.parse_args(argv), {}, ""
    try:
        for folder in arguments.folders:
            path = os.path.join(folder, "result.json")
            with open(path, encoding="utf-8") as file:
                results[folder] = json.load(file)
            [results[folder][key] for key in ("model", "figures", "configuration", "history")]
        page = render_comparison(results)
        with open(arguments.out, "w", encoding="utf-8") as file:
            file.write(page)
    except OSError as error:
        way_out = "name output folders of trainings that have ended, and a file that can be written"
        log_error(one_line(f"error: {error.filename}: {error.strerror}; {way_out}"))
        return 2
    except (ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        log_error(one_line(f"error: {path} is damaged ({why}); move it away, and run it again"))
        return 2
    print(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
