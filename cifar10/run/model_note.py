"""Notes a run's model in model.json, with what identifies the records that it began with."""

from collections.abc import Mapping, Sequence
from typing import Optional

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.host.console import say
from cifar10.input.records import RecordSet
from cifar10.output import model_settings
from cifar10.run import init_checkpoint
from cifar10.run.job import Job
from cifar10.schema import TRAIN, VALIDATION


def note_model(job: Job, checkpoint: Optional[str], start: Optional[init_checkpoint.Start]) -> None:
    """Writes model.json; says so if a run continues with other records or another seed.

    Args:
      job: the job that is about to train.
      checkpoint: the checkpoint from which it continues; None: a new run begins.
      start: the weights of --init-checkpoint, for a new run.
    """
    config, records = job.config, job.records
    origin, now = start and start.as_dict(), records.fingerprints()
    before: Optional[Mapping[str, Sequence[str]]] = now
    seed: Optional[int] = config.seed
    if checkpoint:
        seed = model_settings.began_with_seed(config)
        origin, before = model_settings.started_from(config), model_settings.began_with(config)
        # An earlier version noted no records, but the means of their images.
        if before is None and _standardises_by(checkpoint, records):
            before = now
    model_settings.write(
        config, job.class_names, origin, resize=records.resize, records=before, seed=seed
    )
    if before != now:
        say(_describe_other_records(before or {}, now))
    if seed not in (None, config.seed) and job.params.done.step < job.total_steps:
        say(
            f"note: this run began with --seed {seed}; with --seed {config.seed}, images that are "
            "still to come have another order, and some may come twice in an epoch"
        )


def _standardises_by(checkpoint: str, records: RecordSet) -> bool:
    """Returns whether a checkpoint has the means and deviations of these records' images."""
    reader = tf.train.NewCheckpointReader(checkpoint)
    return all(
        np.array_equal(reader.get_tensor(f"input/{name}"), np.array(values, np.float32))
        for name, values in (
            ("channel_mean", records.channel_mean),
            ("channel_deviation", records.channel_deviation),
        )
    )


def _describe_other_records(
    before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]
) -> str:
    """Returns the line of a run that continues on other records.

    Args:
      before: what identifies the files that the run began with, by split.
      now: what identifies those of now.
    """
    splits = [one for one in (TRAIN, VALIDATION) if before.get(one) != now.get(one)]
    line = f"note: these records differ from those that this run began with ({', '.join(splits)})"
    if VALIDATION not in splits or VALIDATION not in now:
        return line
    return f"{line}; images that trained it may now be in the validation split"
