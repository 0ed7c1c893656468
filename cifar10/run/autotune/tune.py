"""--autotune: from a run's settings to the same with the towers and threads that train fastest.

A run that goes on from a checkpoint keeps what it was begun with, which it noted in its output
folder: towers decide which images share batch statistics, and threads the order of sums, so that
with others it would end with other weights.
"""

import contextlib
import dataclasses
import statistics
import sys
import time
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.host.console import say
from cifar10.host.cpu import count_cores
from cifar10.host.files import read_json, write_json
from cifar10.host.signals import StopRequest
from cifar10.output import checkpoints
from cifar10.run.autotune.candidates import candidates, choose, speedups, take_turns
from cifar10.run.autotune.children import ChildError, Children
from cifar10.run.autotune.memory import Choice, DamagedError, Memory
from cifar10.run.autotune.sample import image_counts, small_step
from cifar10.step.cpu_setting import Setting, rule
from cifar10.step.devices import plan_devices

NOTE_NAME = "autotune.json"

_TURN_SECS = 0.1  # of steps; one step may take longer
_LEAST_SECS = 0.02  # of a step; of a shorter one too much is the start of its ops
_MEASURE_SECS = 60.0  # after which the rounds end; only steps of seconds need as much


def tuned(
    config: TrainConfig, stop: StopRequest, children: Optional[Children] = None
) -> TrainConfig:
    """Chooses towers and threads for a process that trains alone, where --autotune asks for it.

    Args:
      config: the settings; its output folder exists.
      stop: says whether a signal came.
      children: started ahead, to be ended here; None: they are started where they are needed.

    Raises:
      ConfigError: the machine does not fit the settings.
      Stopped: a signal came.
    """
    if not config.autotune:
        return config
    with children or contextlib.nullcontext():
        return _tuned(config, stop, children)


def _tuned(config: TrainConfig, stop: StopRequest, children: Optional[Children]) -> TrainConfig:
    plan = plan_devices(config)
    if plan.on_gpus:
        say("autotune: nothing is measured on GPUs, it is for a CPU's towers and threads")
        return config
    if checkpoints.latest(config.output_place):
        return _as_begun(config)
    chosen = _find(config, rule(config, count_cores()), stop, children)
    note = {**dataclasses.asdict(chosen), "cores": count_cores()}
    write_json(_note_path(config), note)
    return chosen.applied(config)


def _as_begun(config: TrainConfig) -> TrainConfig:
    """Keeps what the run was begun with, where no flag says something else."""
    path = _note_path(config)
    if not tf.io.gfile.exists(path):
        say("autotune: this run was begun without it and stays as it is; name another --output-dir")
        return config
    note, names = read_json(path), []
    towers = note["num_towers"]
    if config.num_towers in (None, towers) and config.train_batch_size % towers == 0:
        names = ["num_towers"]
        if note["cores"] == count_cores():
            names += ["num_inter_threads", "num_intra_threads"]
    kept = {name: note[name] for name in names if getattr(config, name) is None}
    begun = dataclasses.replace(config, **kept)
    say(f"autotune: this run goes on with {rule(begun, count_cores())} ({path})")
    return begun


def _note_path(config: TrainConfig) -> str:
    return str(tf.io.gfile.join(config.output_place, NOTE_NAME))


def _find(
    config: TrainConfig, default: Setting, stop: StopRequest, children: Optional[Children]
) -> Setting:
    """What is remembered, or else what a measurement chooses."""
    settings = candidates(config, default, count_cores())
    if len(settings) == 1:
        say(f"autotune: nothing to choose from, {default}")
        return default
    memory = _memory(config, default)
    choice = _recall(memory) if memory else None
    if memory and choice and choice.setting in settings:
        say(f"autotune: {_describe(choice, default)}, as measured at {choice.measured_at}")
        say(f"autotune: remembered in {memory.path}; remove it to measure anew")
        return choice.setting
    choice = _measure(config, settings, stop, children)
    if choice is None:
        return default
    if memory:
        _keep(memory, choice)
    return choice.setting


def _describe(choice: Choice, default: Setting) -> str:
    if choice.setting == default:
        return f"{default}, which is the rule: nothing was clearly faster"
    return f"{choice.setting}, {choice.speedup:.2f} times as fast as the rule"


def _measure(
    config: TrainConfig,
    settings: list[Setting],
    stop: StopRequest,
    children: Optional[Children],
) -> Optional[Choice]:
    """Times the settings, the rule first; None if that failed."""
    started = time.monotonic()
    try:
        with children or Children(stop) as children:
            _prepare(children, config, settings)
            deadline = time.monotonic() + _MEASURE_SECS
            times = take_turns(
                settings,
                lambda setting: children.step_secs(settings.index(setting), _TURN_SECS),
                lambda: time.monotonic() > deadline,
            )
    except ChildError as error:
        _warn(f"measuring failed, so the rule holds, {settings[0]}: {error}")
        return None
    for setting, seconds in times.items():
        ratio = statistics.median(speedups(times[settings[0]], seconds))
        milliseconds = 1e3 * statistics.median(seconds)
        compared = "(the rule)" if setting == settings[0] else f"({ratio:.2f} times as fast)"
        say(f"  {milliseconds:8.1f} ms a step: {setting} {compared}")
    choice, took = Choice.now(*choose(times)), time.monotonic() - started
    say(f"autotune: {_describe(choice, settings[0])}; measured in {took:.0f} s")
    return choice


def _prepare(children: Children, config: TrainConfig, settings: list[Setting]) -> None:
    """Gets the settings ready with as few images a step as say what more would."""
    counts = image_counts(config.train_batch_size, settings)
    while True:
        step = small_step(config, counts[0])
        is_whole = dataclasses.replace(step, num_gpus=config.num_gpus) == config
        steps = "steps" if is_whole else "small steps"
        say(
            f"autotune: timing {steps} ({step.model_title}, {counts[0]:,} images) with "
            f"{len(settings)} settings of towers and threads"
        )
        children.prepare([setting.applied(step) for setting in settings])
        seconds = children.step_secs(0, _TURN_SECS)
        if seconds >= _LEAST_SECS or len(counts) == 1:
            return
        growth = _TURN_SECS / seconds
        counts = [count for count in counts if count >= growth * counts[0]] or counts[-1:]


def _memory(config: TrainConfig, default: Setting) -> Optional[Memory]:
    try:
        return Memory(config, default)
    except OSError as error:
        _warn(f"the choice cannot be remembered: {error}")
        return None


def _recall(memory: Memory) -> Optional[Choice]:
    try:
        return memory.recall()
    except DamagedError as error:
        _warn(f"{memory.path} is damaged, measuring anew: {error}")
        return None


def _keep(memory: Memory, choice: Choice) -> None:
    try:
        memory.keep(choice)
    except OSError as error:
        _warn(f"the choice cannot be remembered in {memory.path}: {error}")
    else:
        say(f"autotune: remembered in {memory.path}; remove it to measure anew")


def _warn(text: str) -> None:
    print(f"autotune: warning: {text}", file=sys.stderr)
