"""The cover: every pair of values is in a chosen cell, and few cells are chosen."""

import pytest

from tests.faults import cells
from tests.faults.cells import Cell


def test_a_cover_has_every_pair_that_some_cell_has() -> None:
    everything = cells.every_cell()
    chosen = cells.cover(everything, seed=1)
    wanted = set().union(*(cells.pairs_of(cell) for cell in everything))
    assert set().union(*(cells.pairs_of(cell) for cell in chosen)) == wanted


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_cover_of_47_pairs_of_faults_and_tasks_has_at_most_60_cells(seed: int) -> None:
    assert sum(map(len, cells.TASKS_OF.values())) == 47
    assert len(cells.cover(cells.every_cell(), seed)) <= 60


def test_the_seed_decides_the_cover() -> None:
    everything = cells.every_cell()
    assert cells.cover(everything, 1) == cells.cover(everything, 1)
    assert cells.cover(everything, 1) != cells.cover(everything, 2)


def test_a_cover_of_two_by_two_by_one_takes_the_four_cells() -> None:
    four = [Cell(f, t, "start", "sync") for f in ("sigkill", "oom") for t in ("ps", "worker")]
    assert cells.cover(four, seed=7) == four


def test_a_cell_has_six_pairs() -> None:
    assert cells.pairs_of(Cell("oom", "ps", "start", "sync")) == {
        ("oom", "ps"),
        ("oom", "start"),
        ("oom", "sync"),
        ("ps", "start"),
        ("ps", "sync"),
        ("start", "sync"),
    }


def test_a_cell_is_found_by_its_name() -> None:
    found = cells.cell_named("sigkill/ps/mid-run/sync")
    assert found == Cell("sigkill", "ps", "mid-run", "sync")


def test_a_name_of_no_cell_is_refused() -> None:
    with pytest.raises(LookupError, match="no cell full-data/ps/start/sync; a name is FAULT/TASK"):
        cells.cell_named("full-data/ps/start/sync")


def test_cells_are_picked_by_a_word_of_their_name() -> None:
    two = [Cell("sigkill", "ps", "start", "sync"), Cell("oom", "ps", "start", "async")]
    assert cells.pick(two, ["sigkill"]) == two[:1]
    assert cells.pick(two, ["ps"]) == two
    assert cells.pick(two, ["oom/ps/start/async"]) == two[1:]
    assert cells.pick(two, []) == two
