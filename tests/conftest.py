"""A clean environment for all tests, and README's commands for those marked with one."""

import os
from pathlib import Path

import pytest

# A TF_CONFIG from the caller's shell would turn every training in a test into a cluster's task.
os.environ.pop("TF_CONFIG", None)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def readme_command(request: pytest.FixtureRequest) -> str:
    """The README's command that the test is marked with: @pytest.mark.readme("make demo")."""
    marker = request.node.get_closest_marker("readme")
    assert marker is not None, "readme_command is for tests marked with a command of README.md"
    command: str = marker.args[0]
    return command
