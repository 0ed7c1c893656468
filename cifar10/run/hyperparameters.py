"""Shows the settings of a run in TensorBoard's HPARAMS tab, beside its accuracies.

The tab has a row for each run below the folder that TensorBoard reads.
"""

import hashlib
from typing import Any

import tensorflow.compat.v1 as tf
from tensorboard.plugins.hparams import api as hp
from tensorboard.plugins.hparams import plugin_data_pb2

from cifar10.run.environment import describe_config
from cifar10.run.hooks.summaries import writer
from cifar10.run.job import Job
from cifar10.schema import EVAL, TRAIN, VALIDATION
from cifar10.settings import settings_of

# TensorBoard shows five settings at first: these, if it has to choose.
_FIRST = ("learning_rate", "num_layers", "optimizer", "seed", "train_batch_size")
_GROUPS = ("model", "training", "devices")
# The folder of a split beside that of the training, where the settings are.
_METRICS = [
    hp.Metric(tag, group=f"../{split}", display_name=f"{split} {tag}")
    for split in (VALIDATION, EVAL)
    for tag in ("accuracy", "cross_entropy")
] + [hp.Metric(tag, group=".", display_name=f"{TRAIN} {tag}") for tag in ("loss", "images_per_sec")]


def write(job: Job) -> None:
    """Writes the settings to TensorBoard's folder of the training."""
    settings = _settings(job)
    events = writer(job.config.log_folder(TRAIN))
    for summary in (_columns(settings), hp.hparams_pb(settings, trial_id=_trial(job, settings))):
        events.add_summary(tf.Summary.FromString(summary.SerializeToString()), 0)
    events.flush()


def _trial(job: Job, settings: dict[str, Any]) -> str:
    """Returns the name of the run's row; TensorBoard averages runs of the same name."""
    digest = hashlib.sha256(repr(sorted(settings.items())).encode()).hexdigest()
    return f"{job.config.output_dir} {digest[:6]}"


def _columns(settings: dict[str, Any]) -> Any:
    """Returns the summary that names the columns of the tab."""
    names = [hp.HParam(name) for name in settings]
    summary = hp.hparams_config_pb(hparams=names, metrics=_METRICS)
    plugin = summary.value[0].metadata.plugin_data
    content = plugin_data_pb2.HParamsPluginData.FromString(plugin.content)
    for column in content.experiment.hparam_infos:
        column.differs = column.name in _FIRST  # Columns that differ come first.
    plugin.content = content.SerializeToString()
    return summary


def _settings(job: Job) -> dict[str, Any]:
    """Returns the settings that decide what is learned and how fast, and that have a value."""
    known = settings_of(job.config)
    return {
        name: value
        for name, value in describe_config(job.params).items()
        if known[name].group in _GROUPS and value is not None
    }
