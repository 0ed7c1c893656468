"""--autotune: what is remembered, what a run goes on with, and what goes wrong."""

import dataclasses
import json
import os
import pathlib
import signal
import sys
import threading
import time
from typing import Any, Optional

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.errors import Stopped
from cifar10.host.signals import StopRequest
from cifar10.run.autotune import ahead, children, memory, tune
from cifar10.run.autotune.ahead import children_ahead
from cifar10.run.autotune.memory import Choice, DamagedError, Memory
from cifar10.step.cpu_setting import Setting

RULE = Setting(2, 2, 1)
OTHER, THIRD = Setting(1, 1, 2), Setting(4, 2, 1)


@pytest.fixture
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def remembered(**settings: Any) -> Any:
    return Memory(TrainConfig(**settings), RULE).recall()


CHOICE = Choice(THIRD, 1.07, "2026-11-21 17:00+00:00")


def test_a_choice_is_remembered_for_the_same_run_on_the_same_machine(cache):
    assert remembered() is None
    Memory(TrainConfig(), RULE).keep(CHOICE)
    assert remembered() == CHOICE
    assert remembered(seed=3, learning_rate=0.5, output_dir="o", train_steps=7) == CHOICE
    assert remembered(num_layers=44, autotune=True) == CHOICE
    (path,) = (cache / "cifar10-estimator" / "autotune").iterdir()
    assert path.name.startswith("resnet-44-v1-batch-128-fp32-")


@pytest.mark.parametrize(
    "settings",
    [
        {"num_layers": 20},
        {"model": "resnet_v2"},
        {"model": "mlp", "hidden_units": 7},
        {"train_batch_size": 64},
        {"precision": "bf16"},
        {"data_format": "channels_first"},
        {"batch_norm": "sync"},
        {"optimizer": "adam"},
        {"lookahead_steps": 5},
        {"label_smoothing": 0.1},
        {"num_towers": 2},
        {"num_intra_threads": 1},
    ],
)
def test_another_step_has_another_choice(cache, settings):
    Memory(TrainConfig(), RULE).keep(CHOICE)
    assert remembered(**settings) is None


@pytest.mark.parametrize(
    ("name", "value"), [("count_cores", lambda: 99), ("cpu_name", lambda: "Another CPU")]
)
def test_another_machine_has_another_choice(cache, monkeypatch, name, value):
    Memory(TrainConfig(), RULE).keep(CHOICE)
    monkeypatch.setattr(memory, name, value)
    assert remembered() is None


def test_another_rule_or_another_tensorflow_is_measured_anew(cache, monkeypatch):
    Memory(TrainConfig(), RULE).keep(CHOICE)
    assert Memory(TrainConfig(), OTHER).recall() is None
    monkeypatch.setattr(memory.tf2, "__version__", "2.99")
    assert remembered() is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"setting": {"num_towers": 2}}', "\x00"])
def test_a_broken_file_is_told_from_a_missing_one_and_written_anew(cache, text):
    kept = Memory(TrainConfig(), RULE)
    kept.keep(CHOICE)
    kept.path.write_text(text)
    with pytest.raises(DamagedError):
        kept.recall()
    kept.keep(CHOICE)
    assert kept.recall() == CHOICE


def test_a_file_of_another_key_is_not_taken(cache):
    kept = Memory(TrainConfig(), RULE)
    kept.keep(CHOICE)
    entry = json.loads(kept.path.read_text())
    entry["key"]["cores"] = 99
    kept.path.write_text(json.dumps(entry))
    assert kept.recall() is None


def test_a_relative_cache_folder_is_ignored_as_the_standard_says(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path / ".cache" in Memory(TrainConfig(), RULE).path.parents


def test_whoever_reads_while_others_write_sees_a_whole_choice(cache):
    kept = Memory(TrainConfig(), RULE)
    kept.keep(CHOICE)
    others = [
        threading.Thread(target=lambda: [kept.keep(CHOICE) for _ in range(50)]) for _ in range(3)
    ]
    for other in others:
        other.start()
    while any(other.is_alive() for other in others):
        assert kept.recall() == CHOICE
    assert list(kept.path.parent.iterdir()) == [kept.path]


# Stand-ins for `cifar10.run.autotune.fork_server`: what hangs cannot be had of the real one.
FAILS = "import sys; sys.exit('Traceback: many lines\\nMemoryError: no more\\n\\n')"
HANGS = "import time; time.sleep(60)"


def answering(step_secs: str, orders: Optional[int] = None) -> str:
    """A script whose steps take so many seconds: an expression of `towers` and `images`.

    It fails if it was not told to prepare as often as `orders` says.
    """
    return f"""
import json, os, sys
prepared = 0
for line in sys.stdin:
    order = json.loads(line)
    if isinstance(order[0], dict):
        configs, prepared = order, prepared + 1
        print("null", flush=True)
    else:
        if {orders} not in (None, prepared):
            sys.exit(f"{{prepared}} orders")
        config = configs[order[0]]
        towers, images = config["num_towers"], config["train_batch_size"]
        print({step_secs}, flush=True)
"""


ANSWERS = answering("0.8 if towers == 4 else 1.0")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The process ids of what is started."""
    pids: list[int] = []
    start = children.subprocess.Popen

    def noted(*args: Any, **kwargs: Any) -> Any:
        process = start(*args, **kwargs)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(children.subprocess, "Popen", noted)
    return pids


def test_children_are_started_ahead_where_nothing_is_remembered(cache, started, monkeypatch):
    monkeypatch.setattr(children, "_COMMAND", (sys.executable, "-S", "-c", HANGS))
    config = TrainConfig(autotune=True)
    with children_ahead(config, StopRequest()) as ready:
        assert ready is not None
        assert is_alive(started[0])
    assert not is_alive(started[0])

    Memory(config, RULE).keep(CHOICE)
    # Perhaps not what this run has, but that takes TensorFlow to know.
    for known in (config, dataclasses.replace(config, batch_norm="sync", seed=7)):
        with children_ahead(known, StopRequest()) as ready:
            assert ready is None
    with children_ahead(dataclasses.replace(config, autotune=False), StopRequest()) as ready:
        assert ready is None
    assert len(started) == 1
    with children_ahead(dataclasses.replace(config, num_layers=20), StopRequest()) as ready:
        assert ready is not None
    assert len(started) == 2


def test_children_are_started_ahead_without_a_cache_folder(started, monkeypatch):
    def home() -> pathlib.Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(children, "_COMMAND", (sys.executable, "-S", "-c", HANGS))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pathlib.Path, "home", home)
    with children_ahead(TrainConfig(autotune=True), StopRequest()) as ready:
        assert ready is not None
    assert not is_alive(started[0])


def test_no_children_are_started_ahead_where_nothing_can_be_chosen(cache, started):
    flags = {"num_towers": 1, "num_inter_threads": 1, "num_intra_threads": 1}
    with children_ahead(TrainConfig(autotune=True, **flags), StopRequest()) as ready:
        assert ready is None
    assert started == []


def test_children_that_cannot_be_started_ahead_are_left_for_later(cache, monkeypatch):
    monkeypatch.setattr(children, "_COMMAND", ("/no/such/python",))
    with children_ahead(TrainConfig(autotune=True), StopRequest()) as ready:
        assert ready is None


@pytest.fixture
def run(cache, started, tmp_path, monkeypatch) -> Any:
    """Tunes a run on two cores whose children are the script."""
    (tmp_path / "output").mkdir()
    for module in (ahead, tune):
        monkeypatch.setattr(module, "count_cores", lambda: 2)
    monkeypatch.setattr("cifar10.step.devices.count_cores", lambda **sharing: 2)

    def tuned(script: str, stop: Any = None, early: Any = None, **settings: Any) -> Any:
        monkeypatch.setattr(children, "_COMMAND", (sys.executable, "-S", "-c", script))
        places = {"output_dir": str(tmp_path / "output"), "num_gpus": 0}
        config = TrainConfig(**{**places, "autotune": True, **settings})
        chosen = tune.tuned(config, stop or StopRequest(), early)
        return chosen.num_towers, chosen.num_inter_threads, chosen.num_intra_threads

    return tuned


def is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_the_fastest_setting_is_chosen_remembered_and_noted(run, started, capsys, tmp_path):
    assert run(ANSWERS) == (4, 2, 1)
    shown = capsys.readouterr()
    assert shown.err == ""
    assert (
        "   1000.0 ms a step: --num-towers 2 --num-inter-threads 2 --num-intra-threads 1 (the "
        in (shown.out)
    )
    chosen = "--num-towers 4 --num-inter-threads 2 --num-intra-threads 1"
    assert f"autotune: {chosen}, 1.25 times as fast as the rule; measured in " in shown.out
    assert f"autotune: remembered in {tmp_path}/cache/cifar10-estimator/autotune/" in shown.out
    assert len(started) == 1
    assert not any(map(is_alive, started))
    note = json.loads((tmp_path / "output/autotune.json").read_text())
    assert note == {
        "num_towers": 4,
        "num_inter_threads": 2,
        "num_intra_threads": 1,
        "cores": 2,
    }


@pytest.mark.parametrize(
    ("image_secs", "steps"),
    [
        ("1e-3", ["small 128"]),
        ("2e-4", ["small 128"]),  # long enough
        ("1e-4", ["small 128", "small 1,000"]),  # too short; a tenth of a second
        ("1e-6", ["small 128", "4,096"]),  # the whole batch is less
        (
            "(1e-4 if images == 128 else 1e-5)",
            ["small 128", "small 1,000", "4,096"],
        ),
    ],
)
def test_steps_have_as_few_images_as_take_long_enough(run, started, capsys, image_secs, steps):
    script = answering(f"{image_secs} * images * (0.8 if towers == 4 else 1.0)")
    assert run(script, model="mlp", train_batch_size=4096) == (4, 2, 1)
    lines = capsys.readouterr().out.splitlines()
    told = [line.split(" (MLP, 100 hidden units, ") for line in lines[: len(steps)]]
    assert told == [
        [
            "autotune: timing small steps" if "small" in step else "autotune: timing steps",
            f"{step.split()[-1]} images) with 3 settings of towers and threads",
        ]
        for step in steps
    ]
    assert " ms a step: " in lines[len(steps)]
    assert len(started) == 1


def test_a_remembered_choice_is_taken_at_once(run, started, capsys):
    run(ANSWERS)
    capsys.readouterr()
    assert run(FAILS) == (4, 2, 1)
    assert len(started) == 1
    shown = capsys.readouterr()
    assert "1.25 times as fast as the rule, as measured at 20" in shown.out
    assert "remove it to measure anew" in shown.out
    assert shown.err == ""


def test_children_that_were_started_ahead_measure_and_end(run, started, monkeypatch):
    monkeypatch.setattr(children, "_COMMAND", (sys.executable, "-S", "-c", ANSWERS))
    with children.Children(StopRequest()) as early:
        assert run(FAILS, early=early) == (4, 2, 1)
        assert len(started) == 1
        assert not is_alive(started[0])


@pytest.mark.parametrize(
    ("settings", "orders"),
    [
        ({}, 1),
        ({"model": "fastnet", "train_batch_size": 2048, "log_device_placement": True}, 1),
        ({"num_gpus": None}, 1),
        # What comes is not what was expected.
        ({"batch_norm": "sync"}, 2),
    ],
)
def test_what_was_begun_ahead_is_not_asked_for_again(
    run, started, monkeypatch, tmp_path, settings, orders
):
    script = answering("0.8 if towers == 4 else 1.0", orders)
    monkeypatch.setattr(children, "_COMMAND", (sys.executable, "-S", "-c", script))
    monkeypatch.setattr("cifar10.step.devices._use_gpus", lambda config, host_share: 0)
    places = {"output_dir": str(tmp_path / "output"), "num_gpus": 0}
    expected = TrainConfig(**{**places, "autotune": True, **settings, "batch_norm": "tower"})
    with children_ahead(expected, StopRequest()) as early:
        assert run(FAILS, early=early, **settings) == (4, 2, 1)
    assert len(started) == 1


def test_what_fails_ahead_is_told_when_it_is_asked_for(run, monkeypatch, capsys):
    monkeypatch.setattr(children, "_COMMAND", (sys.executable, "-S", "-c", FAILS))
    with children_ahead(TrainConfig(autotune=True), StopRequest()) as early:
        assert run(ANSWERS, early=early) == (2, 2, 1)
    assert capsys.readouterr().err.endswith(": MemoryError: no more\n")


def test_children_that_are_not_needed_after_all_end_too(run, started, monkeypatch):
    run(ANSWERS)
    monkeypatch.setattr(children, "_COMMAND", (sys.executable, "-S", "-c", HANGS))
    with children.Children(StopRequest()) as early:
        assert run(FAILS, early=early) == (4, 2, 1)
        assert not is_alive(started[1])


def test_a_rule_that_nothing_beats_is_remembered_too(run, started, capsys):
    assert run(answering("0.99 if towers == 4 else 1.0")) == (2, 2, 1)
    assert run(FAILS) == (2, 2, 1)
    assert len(started) == 1
    assert capsys.readouterr().out.count("which is the rule: nothing was clearly faster") == 2


def test_without_the_flag_nothing_is_measured_or_written(run, started, cache, capsys, tmp_path):
    assert run(FAILS, autotune=False) == (None, None, None)
    assert started == []
    assert not cache.exists()
    assert list((tmp_path / "output").iterdir()) == []
    assert capsys.readouterr().out == ""


def test_a_flag_for_everything_leaves_nothing_to_choose(run, started, capsys):
    assert run(FAILS, num_towers=1, num_inter_threads=3, num_intra_threads=0) == (1, 3, 0)
    assert started == []
    assert capsys.readouterr().out.startswith("autotune: nothing to choose from, --num-towers 1 ")


def test_a_child_that_fails_is_one_warning_with_its_last_line(run, started, cache, capsys):
    assert run(FAILS) == (2, 2, 1)
    assert capsys.readouterr().err == (
        "autotune: warning: measuring failed, so the rule holds, --num-towers 2 "
        "--num-inter-threads 2 --num-intra-threads 1: MemoryError: no more\n"
    )
    assert not any(map(is_alive, started))
    assert not cache.exists()


def test_a_child_that_is_killed_in_the_middle_says_how_it_ended(run, started, capsys):
    assert run(answering("os.kill(os.getpid(), 9)"))
    assert capsys.readouterr().err.endswith(": ended by signal 9\n")
    assert not any(map(is_alive, started))


def test_a_child_that_hangs_is_ended(run, started, monkeypatch, capsys):
    monkeypatch.setattr(children, "_LIMIT_SECS", 0.3)
    assert run(HANGS) == (2, 2, 1)
    assert capsys.readouterr().err.endswith(": no answer in time\n")
    assert not any(map(is_alive, started))


def test_a_signal_ends_the_children_and_the_run_in_the_usual_way(run, started, tmp_path):
    stop = StopRequest()
    timer = threading.Timer(0.5, stop._note, (signal.SIGTERM,))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(Stopped) as stopped:
        run(HANGS, stop)
    assert stopped.value.signum == signal.SIGTERM
    assert time.monotonic() - begin < 30  # The children would sleep for 60 seconds.
    assert len(started) == 1
    assert not any(map(is_alive, started))
    assert list((tmp_path / "output").iterdir()) == []


def test_a_broken_memory_is_one_warning_and_is_measured_anew(run, started, cache, capsys):
    run(ANSWERS)
    (path,) = (cache / "cifar10-estimator" / "autotune").iterdir()
    path.write_text("{")
    capsys.readouterr()
    assert run(ANSWERS) == (4, 2, 1)
    assert capsys.readouterr().err.startswith(
        f"autotune: warning: {path} is damaged, measuring anew: "
    )
    assert len(started) == 2
    assert run(FAILS) == (4, 2, 1)


def test_a_memory_that_cannot_be_written_is_one_warning(run, cache, capsys):
    cache.write_text("a file where the folder should be")
    assert run(ANSWERS) == (4, 2, 1)
    err = capsys.readouterr().err
    assert err.startswith("autotune: warning: the choice cannot be remembered in ")
    assert err.count("\n") == 1


def test_without_a_cache_folder_the_choice_holds_for_this_run(run, monkeypatch, capsys):
    def home() -> pathlib.Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(pathlib.Path, "home", home)
    assert run(ANSWERS) == (4, 2, 1)
    assert capsys.readouterr().err == (
        "autotune: warning: the choice cannot be remembered: Could not determine home directory.\n"
    )


def test_a_remembered_setting_that_is_no_candidate_any_more_is_measured_anew(run, started, cache):
    run(ANSWERS)
    (path,) = (cache / "cifar10-estimator" / "autotune").iterdir()
    path.write_text(path.read_text().replace('"num_towers": 4', '"num_towers": 64'))
    assert run(ANSWERS) == (4, 2, 1)
    assert len(started) == 2


def begin(folder: pathlib.Path, **note: int) -> None:
    """An output folder with a checkpoint, and a note of what the run was begun with."""
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-5"\n')
    (folder / "model.ckpt-5.index").write_text("")
    if note:
        (folder / "autotune.json").write_text(json.dumps(note))


NOTE = {"num_towers": 4, "num_inter_threads": 3, "num_intra_threads": 2, "cores": 2}


@pytest.mark.parametrize(
    ("note", "settings", "expected"),
    [
        (NOTE, {}, (4, 3, 2)),
        (NOTE, {"num_intra_threads": 1}, (4, 3, 1)),
        (NOTE, {"num_towers": 1}, (1, None, None)),
        # On a machine of another size, threads are the rule's for these towers.
        ({**NOTE, "cores": 8}, {}, (4, None, None)),
        # Another batch cannot be cut in the same way: the rule's towers.
        (NOTE, {"train_batch_size": 10}, (None, None, None)),
        # Begun without --autotune.
        ({}, {}, (None, None, None)),
    ],
)
def test_a_run_that_goes_on_keeps_what_it_was_begun_with(
    run, started, tmp_path, note, settings, expected
):
    begin(tmp_path / "output", **note)
    assert run(FAILS, **settings) == expected
    assert started == []


def test_a_run_that_goes_on_says_so(run, tmp_path, capsys):
    begin(tmp_path / "output", **NOTE)
    run(FAILS)
    assert capsys.readouterr().out == (
        "autotune: this run goes on with --num-towers 4 --num-inter-threads 3 "
        f"--num-intra-threads 2 ({tmp_path}/output/autotune.json)\n"
    )


def test_on_gpus_nothing_is_measured(run, started, monkeypatch, capsys):
    class Plan:
        on_gpus = True

    monkeypatch.setattr(tune, "plan_devices", lambda config: Plan())
    assert run(FAILS) == (None, None, None)
    assert started == []
    assert capsys.readouterr().out.startswith("autotune: nothing is measured on GPUs")
