"""--autotune from the command line, with the children that really train."""

import dataclasses
import json
import os
import pathlib
import signal
import time
from collections.abc import Callable

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.host.signals import StopRequest
from cifar10.run.autotune.children import ChildError, Children
from cifar10.step.cpu_setting import Setting
from tests.cifar10 import program

# A tower of 32 images is a candidate beside one of 64 even on one core.
SMALL = ("--autotune", "--model=mlp", "--train-batch-size=64", "--num-gpus=0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with records in its default place."""
    return program.make_records(tmp_path_factory.mktemp("autotune") / "data", 200).parent


def test_a_run_measures_remembers_and_goes_on_with_its_choice(folder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    first = program.run(*SMALL, "--train-steps=3", cwd=folder)
    assert (first.returncode, first.stderr) == (0, "")
    lines = first.stdout.splitlines()
    assert lines[0].startswith("autotune: timing steps (MLP, 100 hidden units, 64 images) with ")
    assert sum(" ms a step: --num-towers " in line for line in lines) >= 2
    assert sum(line.endswith(" (the rule)") for line in lines) == 1
    (remembered,) = (folder / "cache/cifar10-estimator/autotune").iterdir()
    assert f"autotune: remembered in {remembered}; remove it to measure anew" in lines
    note = json.loads((folder / "output/autotune.json").read_text())
    configuration = json.loads((folder / "output/result.json").read_text())["configuration"]
    for name in ("num_towers", "num_inter_threads", "num_intra_threads"):
        assert configuration[name] == note[name]

    with program.started(*SMALL, "--output-dir=second", cwd=folder) as again:
        program.wait_for_line(f"autotune: remembered in {remembered}; remove it", again)
    remembered.unlink()
    with program.started(*SMALL, cwd=folder) as on:
        kept = f"autotune: this run goes on with --num-towers {note['num_towers']} "
        program.wait_for_line(kept, on)
    assert not remembered.exists()


# In TensorFlow's place: says that it is being loaded, and waits until another process does so, too.
RENDEZVOUS = """
import os, pathlib, sys, time
here = pathlib.Path(__file__).parent
(here / f"loading-{os.getpid()}").touch()
deadline = time.monotonic() + 60
while len(list(here.glob("loading-*"))) < 2:
    if time.monotonic() > deadline:
        sys.exit("nobody else loads TensorFlow")
    time.sleep(0.01)
sys.exit("both load TensorFlow")
"""


def test_tensorflow_loads_in_the_children_while_it_loads_here(folder, tmp_path, monkeypatch):
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text(RENDEZVOUS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert program.run(*SMALL, cwd=folder).stderr == "both load TensorFlow\n"


def test_a_mistake_leaves_no_children_that_were_started_ahead(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with program.started(*SMALL, "--data-dir=nowhere", cwd=tmp_path) as process:
        while not (servers := children_of(process.pid)):
            assert process.poll() is None
            time.sleep(0.01)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert err.startswith("error: ")
    assert session_of(servers[0]) == []


def stat_of(pid: object) -> list[str]:
    """State, parent and so on of a process (proc(5)); nothing once it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
    return [] if fields[0] == "Z" else fields


def children_of(pid: int) -> list[int]:
    """The processes that `pid` has started."""
    return [one for one in everyone() if stat_of(one)[1:2] == [str(pid)]]


def session_of(pid: int) -> list[int]:
    """The processes of the session that `pid` leads or led."""
    return [one for one in everyone() if stat_of(one)[3:4] == [str(pid)]]


def everyone() -> list[int]:
    return [int(path.name) for path in pathlib.Path("/proc").glob("[0-9]*")]


def wait_until_none(found: Callable[[], list[int]]) -> None:
    deadline = time.monotonic() + 60
    while pids := found():
        assert time.monotonic() < deadline, f"still there after 60 s: {pids}"
        time.sleep(0.05)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_while_measuring_leaves_no_children(folder, tmp_path, monkeypatch, signum):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with program.started(*SMALL, "--output-dir=stopped", cwd=folder) as process:
        program.wait_for_line("autotune: timing", process)
        while not (servers := children_of(process.pid)) or not children_of(servers[0]):
            time.sleep(0.01)
        code, _, err = program.interrupt(process, signum)
        wait_until_none(lambda: session_of(servers[0]))
    if signum != signal.SIGKILL:
        assert code == 128 + signum
        assert err == f"stopped by signal {int(signum)}; run the same command to continue\n"
    assert not (tmp_path / "cifar10-estimator").exists()


RESNET = TrainConfig(num_layers=8, train_batch_size=32, lookahead_steps=2, num_gpus=0)


def test_children_time_the_real_step_with_any_towers_and_threads():
    settings = [Setting(2, 2, 1), Setting(4, 2, 1), Setting(1, 1, 2)]
    others = children_of(os.getpid())
    with Children(StopRequest()) as children:
        children.prepare([setting.applied(RESNET) for setting in settings])
        (server,) = set(children_of(os.getpid())).difference(others)
        before = children_of(server)
        assert len(before) == 3
        seconds = [children.step_secs(index, 0.05) for index in range(3)]
        assert all(0.0 < one < 60.0 for one in seconds)

        children.prepare([settings[0].applied(RESNET)])
        assert len(children_of(server)) == 1
        wait_until_none(lambda: [pid for pid in before if stat_of(pid)])
        assert children.step_secs(0, 0.05) > 0.0
    wait_until_none(lambda: session_of(server))


def test_the_last_words_of_a_fork_that_fails_are_the_error():
    too_many = dataclasses.replace(RESNET, num_gpus=99)
    with (
        pytest.raises(ChildError, match="--num-gpus.* 99"),
        Children(StopRequest()) as children,
    ):
        children.prepare([RESNET, too_many])


def test_a_fork_that_is_killed_is_told_by_its_signal():
    others = children_of(os.getpid())
    with Children(StopRequest()) as children:
        children.prepare([Setting(1, 1, 1).applied(RESNET)])
        (server,) = set(children_of(os.getpid())).difference(others)
        (fork,) = children_of(server)
        os.kill(fork, signal.SIGKILL)
        with pytest.raises(ChildError, match="^ended by signal 9$"):
            children.step_secs(0, 0.05)
