"""Notes a run's model in run.json, with what identifies the records that it began with."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Optional

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.host.console import say
from cifar10.input.records import RecordSet
from cifar10.output import model_settings, recovery, run_file
from cifar10.output.history import EVALUATOR_FILE_NAME
from cifar10.output.run_file import Run
from cifar10.run import init_checkpoint
from cifar10.run.job import Job
from cifar10.run.results import RESULT_NAME
from cifar10.schema import TRAIN, VALIDATION


def note_model(job: Job, checkpoint: Optional[str], start: Optional[init_checkpoint.Start]) -> None:
    """Writes run.json; says so if a run continues with other records or another seed.

    What an older run has left in the output folder is renamed when a new one begins.

    Args:
      job: the job that is about to train.
      checkpoint: the checkpoint from which it continues; None: a new run begins.
      start: the weights of --init-checkpoint, for a new run.

    Raises:
      ConfigError: the output folder has checkpoints of another model or of other classes.
      DamagedError: run.json is damaged.
      UnreadableError: run.json cannot be read.
    """
    config, records, now = job.config, job.records, job.records.fingerprints()
    model_settings.check_same(config, job.class_names)
    if checkpoint is None:  # Not earlier: a run that is refused changes no file.
        _set_older_aside(config.output_place)
        run = Run(init_checkpoint=start and start.as_dict(), records=now, seed=config.seed)
    else:
        run = run_file.read(config.output_place)
        # An earlier version noted no records, but the means of their images.
        if run.records is None and _standardises_by(checkpoint, records):
            run = dataclasses.replace(run, records=now)
    model_settings.write(
        config,
        job.class_names,
        resize=records.resize,
        init_checkpoint=run.init_checkpoint,
        records=run.records,
        seed=run.seed,
    )
    if run.records != now:
        say(_describe_other_records(run.records or {}, now))
    if run.seed not in (None, config.seed) and job.params.done.step < job.total_steps:
        say(
            f"note: this run began with --seed {run.seed}; with --seed {config.seed}, images that "
            "are still to come have another order, and some may come twice in an epoch"
        )


def _set_older_aside(output_dir: str) -> None:
    """Renames the files by which tasks know how an older run went, but metrics.jsonl.

    The owner stays: a master that is started again before its first checkpoint is the same one.
    """
    run = run_file.read(output_dir)
    names = [RESULT_NAME, EVALUATOR_FILE_NAME, *run_file.EARLIER]
    if any(run.history.values()):
        names.append(run_file.NAME)
    recovery.set_older_aside([tf.io.gfile.join(output_dir, name) for name in names], say)
    run_file.write(output_dir, Run(owner=run.owner))


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
