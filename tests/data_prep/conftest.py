"""Sources and record folders that several tests share; the tests only read them."""

import shutil
from pathlib import Path
from typing import Optional

import pytest

from data_prep import cli
from tests.data_prep import made


@pytest.fixture(scope="session")
def python_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("python")
    return made.python_folder(folder / "cifar-10-batches-py")


@pytest.fixture(scope="session")
def image_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.image_folder(tmp_path_factory.mktemp("tree") / "images")


@pytest.fixture
def tree(image_source: Path, tmp_path: Path) -> Path:
    """A copy of `image_source`, to change."""
    return shutil.copytree(image_source, tmp_path / "images")


@pytest.fixture(scope="session")
def built(python_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of records: 90 training, 10 validation and 20 eval images."""
    out = tmp_path_factory.mktemp("built")
    assert cli.main(["--source", str(python_source), "--out", str(out)]) == 0
    return out


@pytest.fixture
def out(built: Path, tmp_path: Path) -> Path:
    """A copy of `built`, to change."""
    return shutil.copytree(built, tmp_path / "out")


def pytest_make_parametrize_id(val: object) -> Optional[str]:
    """Shortens long byte strings in test names, since file contents are up to a megabyte."""
    return "bytes" if isinstance(val, bytes) and len(val) > 20 else None
