"""Describes what a result depends on besides the code: settings, versions, hardware."""

import dataclasses
import os
import platform
from importlib import metadata
from typing import Any

import tensorflow as tf2

from cifar10 import models
from cifar10.host.cpu import count_cores, cpu_name
from cifar10.optim.learning_rate import highest_rate, warmup_steps
from cifar10.output.history import rounded_figures
from cifar10.step.params import ModelParams

_PACKAGES = ("tensorflow-estimator", "numpy", "pillow", "matplotlib")


def describe_config(params: ModelParams) -> dict[str, Any]:
    """Returns every setting by name, with the values that were chosen for unset ones."""
    in_force = _in_force(params)
    chosen = {name: in_force[name] for name in chosen_settings(params)}
    return {**dataclasses.asdict(params.config), **rounded_figures(chosen)}


def chosen_settings(params: ModelParams) -> list[str]:
    """Returns the names of the settings whose values were chosen for this run, in order."""
    config = params.config
    return [name for name, value in _in_force(params).items() if value != getattr(config, name)]


def _in_force(params: ModelParams) -> dict[str, Any]:
    """Returns the values in force of the settings that may be unset, chosen or not."""
    config, plan = params.config, params.plan
    session = plan.session_config
    return {
        **_learning(params),
        **models.find(config.model).in_force(config),
        "num_gpus": len({device for device in plan.tower_devices if "gpu" in device}),
        "num_towers": plan.num_towers,
        "data_format": plan.data_format,
        "num_intra_threads": session.intra_op_parallelism_threads,
        "num_inter_threads": session.inter_op_parallelism_threads,
        "kernels": plan.kernels,
        "summary_steps": config.steps_between_rows(params.total_steps),
    }


def _learning(params: ModelParams) -> dict[str, Any]:
    """Returns the learning rate and the warm-up that were chosen where the settings are unset."""
    config, batch, chosen = params.config, params.examples_per_step, {}
    if config.learning_rate is None:
        chosen["learning_rate"] = highest_rate(config, batch, params.place.staleness)
        chosen["learning_rate_batch"] = batch
    if config.warmup_epochs is None:
        steps_per_epoch = params.num_examples / batch
        steps = warmup_steps(config, steps_per_epoch, params.total_examples / batch)
        chosen["warmup_epochs"] = steps / steps_per_epoch
    return chosen


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that training uses."""
    packages = {name: metadata.version(name) for name in _PACKAGES}
    # The package of TensorFlow may be tensorflow-cpu.
    return {"python": platform.python_version(), "tensorflow": tf2.__version__, **packages}


def hardware() -> dict[str, Any]:
    """Describes the machine: CPU, cores this process may use, memory in GiB, visible GPUs."""
    gpus = tf2.config.get_visible_devices("GPU")
    details = [tf2.config.experimental.get_device_details(gpu) for gpu in gpus]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu_name(),
        "cores": count_cores(),
        "memory_gib": round(memory / 2**30, 1),
        "gpus": [detail.get("device_name", "GPU") for detail in details],
    }
