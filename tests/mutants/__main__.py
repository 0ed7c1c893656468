"""Entry point of `python -m tests.mutants`."""

import sys

from tests.mutants.cli import main

if __name__ == "__main__":
    sys.exit(main())
