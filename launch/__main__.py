"""Entry point of `python -m launch`."""

import sys

from launch.verbs.cli import main

if __name__ == "__main__":
    sys.exit(main())
