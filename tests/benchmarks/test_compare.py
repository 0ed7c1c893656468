import sys

import pytest

from benchmarks.arguments import BenchmarkError
from benchmarks.compare import last_rate, spreads_of


def test_ratios_are_taken_round_by_round_with_the_fastest_peer() -> None:
    rates = {"ours": [120.0, 60.0, 121.0], "keras": [100.0, 40.0, 90.0], "torch": [1.0, 1.0, 110.0]}
    found = spreads_of(rates)
    assert found["keras"] == [90.0, 40.0, 100.0]
    assert found["ratio"] == pytest.approx([1.2, 1.1, 1.5])


def test_a_peers_rate_is_in_its_last_line_and_a_failure_in_its_last_error() -> None:
    printing = "print('warming up'); print('{\"images_per_sec\": 12.5}')"
    assert last_rate([sys.executable, "-c", printing]) == 12.5
    with pytest.raises(BenchmarkError, match="failed: out of memory$"):
        last_rate([sys.executable, "-c", "import sys; sys.exit('oh\\nout of memory')"])
