"""Every setting acts: a table of what each of them changes, in tests/cifar10/flag_effects/.

A setting that is parsed and then forgotten is the mistake that nobody notices. So each setting has
a row, which says what is seen of it with two or more of its values: in the batch, in a graph, in
what steps of training do, in how tasks of a cluster meet, or in what a whole run writes and prints.
"""

import dataclasses

import pytest

from cifar10.config.flags import parse
from cifar10.config.train_config import TrainConfig
from tests.cifar10.flag_effects import clusters, graphs, pixels, runs, training
from tests.cifar10.flag_effects.rows import Row
from tests.cifar10.forks import Forks

pytestmark = pytest.mark.timeout(600)  # The whole runs come one after the other.

ROWS = [*pixels.ROWS, *graphs.ROWS, *training.ROWS, *clusters.ROWS]
_BUILD_NETWORKS = [*graphs.ROWS, *training.ROWS]  # slow


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The flags of records whose pixels say where they are, and of an output folder."""
    folder = tmp_path_factory.mktemp("places")
    pixels.write_records(folder)
    return [f"--data-dir={folder}", f"--output-dir={folder / 'output'}"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> dict[str, runs.Finished]:
    """The whole runs, by name."""
    return runs.run_all(tmp_path_factory.mktemp("runs"), forks)


def test_every_setting_has_a_row_and_every_row_a_setting():
    settings = {field.name for field in dataclasses.fields(TrainConfig)}
    assert {row.setting for row in [*ROWS, *runs.ROWS]} == settings


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=str(row), marks=[pytest.mark.system] * (row in _BUILD_NETWORKS))
        for row in ROWS
    ],
)
def test_a_setting_changes_what_its_row_says(row: Row, places, request):
    if row.fixture:
        request.getfixturevalue(row.fixture)
    assert len(row.seen) >= 2
    found = {value: row.probe(parse([*places, *row.arguments(value)])) for value in row.seen}
    assert found == row.seen
    values = list(found.values())
    assert all(values.count(value) == 1 for value in values), "a value that changes nothing"


@pytest.mark.system
@pytest.mark.parametrize("row", runs.ROWS, ids=str)
def test_a_setting_changes_what_its_row_says_of_whole_runs(row: runs.RunRow, finished):
    assert len(row.seen) >= 2
    configs = [runs.config_of(name) for name in row.seen]
    settings = [getattr(config, row.setting) for config in configs]
    assert all(settings.count(value) == 1 for value in settings), "runs with the same value"
    found = {name: row.probe(finished[name]) for name in row.seen}
    assert found == row.seen
    values = list(found.values())
    assert all(values.count(value) == 1 for value in values), "a value that changes nothing"
