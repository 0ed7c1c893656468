import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.peers.compare import (
    Case,
    last_rate,
    still_to_do,
)
from benchmarks.peers.report import (
    OURS,
    Row,
    read_rows,
    summarise,
    write_report,
)

ROWS = [
    Row(number, "resnet-20", 128, precision, way, rate, 0.5)
    for number, precision, way, rate in (
        (1, "fp32", OURS, 120.0),
        (1, "fp32", "Keras fit", 100.0),
        (2, "fp32", OURS, 60.0),
        (2, "fp32", "Keras fit", 40.0),
        (3, "fp32", OURS, 121.0),
        (3, "fp32", "Keras fit", 110.0),
        (1, "bf16", OURS, 2000.0),
        (1, "bf16", "Keras fit", 1000.0),
    )
]

CONDITIONS = {
    "hardware": {"cpu": "a CPU", "cores": 2, "gpus": []},
    "versions": {"python": "3.11.7", "tensorflow": "2.15.1", "torch": "2.0"},
    "data": "synthetic",
    "flags": [],
}


def test_ratios_are_taken_round_by_round() -> None:
    found = summarise(ROWS)["resnet-20", 128, "fp32", "Keras fit"]
    assert found.rates == (100.0, 40.0, 110.0)
    assert found.ratios == pytest.approx((1.2, 1.1, 1.5))
    assert found.rounds == 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"flags": ["--kernels", "pairs"]}, r"was measured with flags \[\], and here is"),
        ({"data": "images"}, "was measured with data synthetic, and here is images; choose"),
        ({"hardware": {"cpu": "a CPU", "cores": 4, "gpus": []}}, "was measured with hardware"),
        ({"versions": {"python": "3.11.7", "torch": "2.1"}}, "'torch': '2.0'"),
    ],
)
def test_figures_of_other_conditions_are_not_mixed(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    write_report(tmp_path, ROWS, CONDITIONS)
    with pytest.raises(BenchmarkError, match=message):
        read_rows(tmp_path, {**CONDITIONS, **changed})


def test_rounds_that_are_there_are_not_measured_again() -> None:
    short, long = (Case(name, 128, "fp32", 30) for name in ("resnet-20", "resnet-44"))
    assert still_to_do([short, long], [], 2) == [(short, 1), (long, 1), (short, 2), (long, 2)]
    assert still_to_do([short, long], ROWS, 4) == [
        (long, 1),
        (long, 2),
        (long, 3),
        (short, 4),
        (long, 4),
    ]


def test_a_peers_rate_is_in_its_last_line() -> None:
    printing = "print('warming up'); print('{\"images_per_sec\": 12.5}')"
    assert last_rate([sys.executable, "-c", printing]) == 12.5


def test_a_peer_that_fails_is_named_with_its_last_line() -> None:
    with pytest.raises(BenchmarkError, match="failed: out of memory$"):
        last_rate([sys.executable, "-c", "import sys; sys.exit('oh\\nout of memory')"])
