"""Runs compare, advise, check-scale and many briefly with real training; ignores their figures."""

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import cli
from benchmarks.scaling import advise
from benchmarks.scaling.advised_ways import ways_on_this_machine
from benchmarks.scaling.step_model import Constants
from testbeds.limited_links import Machine, Machines, why_not
from tests.cifar10 import program

pytestmark = pytest.mark.system
SMALL = ("--num-layers=8", "--train-batch-size=16")
needs_namespaces = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
# TAKE receives data until its end. SEND sends a megabyte, waits until TAKE has received it, and
# prints how many seconds that took.
TAKE = """
import socket
connection = socket.create_server(("", 2222)).accept()[0]
for _ in iter(lambda: connection.recv(1 << 20), b""):
    pass
"""
SEND = """
import socket, sys, time
while True:
    start = time.monotonic()
    try:
        connection = socket.create_connection((sys.argv[1], 2222))
        break
    except ConnectionRefusedError:
        pass
connection.sendall(bytes(10**6))
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
print(time.monotonic() - start)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program.make_records(tmp_path_factory.mktemp("benchmarks") / "data", 1_000)


def test_ours_is_compared_with_every_peer_that_is_here(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--networks", "resnet-20", "--precisions", "fp32", "--batch-size", "16"]
    words += ["--rounds", "1", "--steps", "10", f"--data-dir={data}", f"--out={tmp_path}"]
    assert cli.main(["compare", *words]) == 0
    assert "| resnet-20 | 16 | fp32 | MirroredStrategy | 1 |" in capsys.readouterr().out
    runs = json.loads((tmp_path / "compare.json").read_text())["runs"]
    assert [run["way"] for run in runs][:3] == [
        "train_and_evaluate",
        "Keras fit",
        "MirroredStrategy",
    ]
    assert min(run["images_per_sec"] for run in runs) > 0
    assert (tmp_path / "compare.png").stat().st_size > 5000


def test_ways_are_tried_and_the_best_one_is_named(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    some = [way for way in ways_on_this_machine() if way.ps < 2 and not way.sync]
    monkeypatch.setattr(advise, "ways_on_this_machine", lambda: some)
    monkeypatch.setenv("COLUMNS", "200")
    words = ["--rounds", "1", "--seconds", "1", "--out", str(tmp_path / "advised.yaml")]
    assert cli.main(["advise", *words, "--", *SMALL, f"--data-dir={data}"]) == 0
    shown = capsys.readouterr().out
    assert "one process" in shown
    assert "2 trainers and 1 ps here" in shown
    assert "best: " in shown
    assert "--num-layers=8 --train-batch-size=16" in shown or "--data-dir" in shown


@contextlib.contextmanager
def run_in(namespace: str, program: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Starts a Python program in a network namespace, and kills it at the end."""
    words = ["nsenter", f"--net=/run/netns/{namespace}", sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@needs_namespaces
def test_a_link_has_its_speed_and_its_delay() -> None:
    with Machines([Machine(0, "0"), Machine(1, "0")], 12.5e6, 0.01) as machines:
        sends, takes = machines.name(0), machines.name(1)
        for words in (["tc", "-n", takes], ["tc"]):
            device = "eth0" if len(words) > 1 else f"v{takes}"
            show = [*words, "qdisc", "show", "dev", device]
            assert "rate 100Mbit" in subprocess.run(show, capture_output=True, text=True).stdout
        with run_in(takes, TAKE), run_in(sends, SEND, machines.address(1)) as sender:
            secs = float(sender.communicate(timeout=60)[0])
    # Two round trips take 40 ms and 1 MB takes 80 ms, less the burst that may pass at once. No
    # machine is faster than that, however fast it is.
    assert secs > 0.1


@needs_namespaces
def test_the_model_is_checked_over_a_slow_link(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    constants = Constants(16, 6e5, 0.02, 0.1, 0.0, 0.003, 1e-9)
    file = tmp_path / "constants.json"
    file.write_text(json.dumps(dataclasses.asdict(constants)))
    words = ["--seconds", "1", "--links", "100Mbit+10ms", "--shapes", "1x1"]
    words += ["--constants", str(file)]
    assert cli.main(["check-scale", *words, "--", *SMALL, f"--data-dir={data}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (found,) = (json.loads(line) for line in lines if line.startswith("{"))
    assert (found["link"], found["delay"]) == ("100 Mbit/s", "10 ms")
    assert float(found["predicted"]) > 0
    assert float(found["measured"]) > 0


def test_the_start_and_the_end_of_a_job_are_timed(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--trainers", "2", "--ps", "1", "--steps", "5"]
    assert cli.main(["many", *words, "--", *SMALL, f"--data-dir={data}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (found,) = (json.loads(line) for line in lines if line.startswith("{"))
    assert (found["trainers"], found["ps"], found["exit_code"]) == (2, 1, 0)
    assert 0 < found["start_secs"] < 600
    assert 0 < found["end_secs"] < 600
    assert 50 < found["memory_mb"] < 5000
    assert 10 < found["descriptors"] < 1000
