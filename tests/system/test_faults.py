"""Cells of `make test-faults` that stand for the others; the whole matrix takes half an hour."""

import signal
from pathlib import Path

import pytest

from tests.cifar10.program import make_records
from tests.faults import checks
from tests.faults.cells import cell_named
from tests.faults.experiment import Bench
from tests.faults.runs import Job, Shape, Size

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("faults")
    data = make_records(folder / "data", 200)
    return Bench(folder / "jobs", data, Size(stopped_secs=2, slow_secs=5), folder / "logs")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_job_that_nothing_breaks_is_complete_and_leaves_nothing(bench: Bench, mode: str) -> None:
    assert bench.undisturbed_secs(Shape(mode)) > 0  # An error names what is wrong.


@pytest.mark.parametrize(
    "name",
    [
        "sigkill/ps/mid-run/sync",
        "sigkill/launcher/mid-run/sync",
        "sigterm/master/mid-run/async",
        "full-output/master/mid-run/async",
        "clock/worker/mid-run/sync",
    ],
)
def test_a_job_that_is_broken_once_is_complete_in_the_end(bench: Bench, name: str) -> None:
    result = bench.run(cell_named(name), compare=False)
    assert result.wrong == []
    assert result.outcome.endswith(("0, by itself", ", then 0"))


def test_a_job_that_is_killed_leaves_what_the_checks_find(tmp_path: Path) -> None:
    """A process, a port, a lock and a file are found, which a check that saw nothing would miss."""
    data = make_records(tmp_path / "data", 200)
    job = Job(tmp_path / "job", data, Shape("sync"), Size())
    job.start()
    try:
        job.wait_for_moment("master", "mid-run")
        left = "\n".join(checks.nothing_left(job, 0))
    finally:
        job.launcher.send_signal(signal.SIGINT)
        job.end()
        job.kill()
    for words in ("process ", "port ", ".training.lock is left"):
        assert words in left
    assert checks.nothing_left(job, 5) == []
    assert checks.complete(job) != []
