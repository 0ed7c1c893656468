"""Runs `python -m tests.faults`."""

import sys

from tests.faults.cli import main

sys.exit(main())
