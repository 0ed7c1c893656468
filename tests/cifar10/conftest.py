"""Record folders that several tests share; the tests only read them."""

import pathlib
from collections.abc import Iterator

import pytest

from data_prep import cli
from tests.data_prep import made


@pytest.fixture
def pools_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the thread pools of the tests' own process, which have their sizes already."""
    monkeypatch.setattr("cifar10.run.job.use_devices", lambda *devices: None)


@pytest.fixture
def own_event_files() -> Iterator[None]:
    """Closes event files at the end, so that no other test writes to them."""
    import tensorflow.compat.v1 as tf

    yield
    tf.summary.FileWriterCache.clear()


@pytest.fixture(scope="session")
def tutorial_data(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The tutorial's three files, no manifest: 100 training, 7 validation, 23 eval images."""
    # Imported here since it loads TensorFlow, which many test files do not need.
    from tests.cifar10 import record_files

    folder = tmp_path_factory.mktemp("tutorial")
    record_files.write_numbered(folder, "train", 100)
    record_files.write_numbered(folder, "validation", 7, first=300)
    record_files.write_numbered(folder, "eval", 23, first=600)
    return folder


@pytest.fixture(scope="session")
def prepared_data(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder made by data_prep: 90 training images in two shards, 10 validation, 20 eval."""
    folder = tmp_path_factory.mktemp("prepared")
    source = made.python_folder(folder / "cifar-10-batches-py")
    data = folder / "data"
    assert cli.main(["--source", str(source), "--out", str(data), "--shards", "2"]) == 0
    return data
