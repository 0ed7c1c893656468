"""Cells of `make test-faults` that stand for the others; the whole matrix takes half an hour."""

import pytest

from tests.cifar10.program import make_records
from tests.faults.cells import chosen
from tests.faults.experiment import Bench

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("faults")
    data = make_records(folder / "data", 200)
    return Bench(folder / "jobs", data, folder / "kept")


@pytest.mark.parametrize(
    "name",
    [
        "sigkill/ps/mid-run/sync",
        "sigstop/worker/mid-run/sync",
        "sigkill/master/saving/sync",
        "sigkill/master/figures/sync",
        "full-output/master/mid-run/async",
        "clock/worker/mid-run/sync",
    ],
)
def test_a_job_that_is_broken_once_is_complete_in_the_end(bench: Bench, name: str) -> None:
    (cell,) = chosen([name], 1)
    result = bench.run(cell)
    assert result.wrong == []
    assert result.outcome.endswith(("0, by itself", ", then 0"))
