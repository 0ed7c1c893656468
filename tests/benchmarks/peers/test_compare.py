import json
import sys
from pathlib import Path
from typing import Any, Optional

import pytest
from PIL import Image

from benchmarks.errors import BenchmarkError
from benchmarks.peers.compare import (
    TORCH,
    Case,
    installed_peers,
    last_rate,
    main,
    still_to_do,
    warn_of_missing_kernels,
)
from benchmarks.peers.report import (
    OURS,
    Row,
    as_markdown,
    conditions_text,
    read_rows,
    summarise,
    write_report,
)
from cifar10.ops.kernels import library

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


def test_the_table_says_by_how_much_ours_is_ahead() -> None:
    assert as_markdown(summarise(ROWS)).splitlines()[2:] == [
        "| resnet-20 | 128 | fp32 | train_and_evaluate | 3 | 120 | 60, 121 | | |",
        "| resnet-20 | 128 | fp32 | Keras fit | 3 | 100 | 40, 110 | 1.20 | 1.10, 1.50 |",
        "| resnet-20 | 128 | bf16 | train_and_evaluate | 1 | 2,000 | 2,000, 2,000 | | |",
        "| resnet-20 | 128 | bf16 | Keras fit | 1 | 1,000 | 1,000, 1,000 | 2.00 | 2.00, 2.00 |",
    ]


def test_a_table_json_and_a_picture_are_written(tmp_path: Path) -> None:
    other = ROWS[0]._replace(network="fastnet", batch_size=1024)  # without bf16, without Keras
    text = write_report(tmp_path, [*ROWS, other], CONDITIONS)
    assert text == (tmp_path / "compare.md").read_text()
    assert (
        "2 cores of a CPU; Python 3.11.7, TensorFlow 2.15.1, PyTorch 2.0; data: synthetic" in text
    )
    runs = json.loads((tmp_path / "compare.json").read_text())["runs"]
    assert [run["images_per_sec"] for run in runs] == [r.images_per_sec for r in [*ROWS, other]]
    with Image.open(tmp_path / "compare.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > 600


def test_flags_of_ours_are_stated() -> None:
    flags = ["--kernels", "pairs"]
    text = conditions_text({**CONDITIONS, "flags": flags})
    assert text.endswith("; data: synthetic; train_and_evaluate with --kernels pairs.")
    assert conditions_text(CONDITIONS).endswith("; data: synthetic.")


@pytest.mark.parametrize("flag", ["--model=mlp", "--precision=bf16", "--train-batch-size=16"])
def test_flags_that_all_ways_share_are_refused_for_ours(flag: str) -> None:
    with pytest.raises(BenchmarkError, match=f"^{flag.split('=')[0]} must be the same in all ways"):
        main(["--", flag])


def test_what_was_measured_before_is_added_to(tmp_path: Path) -> None:
    assert read_rows(tmp_path, CONDITIONS) == ([], CONDITIONS)
    write_report(tmp_path, ROWS, CONDITIONS)
    without_torch = {**CONDITIONS, "versions": {"python": "3.11.7", "tensorflow": "2.15.1"}}
    assert read_rows(tmp_path, without_torch) == (ROWS, CONDITIONS)


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


def test_another_programs_file_is_not_added_to(tmp_path: Path) -> None:
    (tmp_path / "compare.json").write_text("{}")
    with pytest.raises(BenchmarkError, match="is not what compare writes; choose another --out"):
        read_rows(tmp_path, CONDITIONS)


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


def test_a_python_without_torch_is_refused_by_name(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(BenchmarkError, match=f"must name a Python that has torch, got {python}"):
        installed_peers(str(python))
    with pytest.raises(BenchmarkError, match="No such file"):
        installed_peers(str(tmp_path / "nowhere"))


def test_torch_is_run_by_the_python_that_has_it(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 2.13.0\n")
    python.chmod(0o755)
    peers, conditions = installed_peers(str(python))
    assert peers[TORCH].python == str(python)
    assert conditions["versions"]["torch"] == "2.13.0"


@pytest.mark.parametrize("reason", [None, "they are not compiled (make venv)"])
def test_a_comparison_without_our_convolutions_says_so(
    reason: Optional[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library, "why_not", lambda flags: reason)
    warn_of_missing_kernels()
    line = "train_and_evaluate has TensorFlow's convolutions here: ours cannot be had, they are not"
    said = capsys.readouterr().out
    assert said.startswith(line) if reason else said == ""
