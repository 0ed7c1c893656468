"""A fixture with a launcher, whose processes are killed after the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.launcher import Launcher


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path)
    yield launcher
    launcher.end()
