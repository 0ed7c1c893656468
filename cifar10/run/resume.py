"""What training continues from; the four rules stand in `cifar10/train.py`."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from cifar10 import models
from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import NOTHING_DONE, Done, TrainConfig
from cifar10.errors import ConfigError, Stopped, UserError
from cifar10.host.files import exists
from cifar10.host.folder_lock import EVALUATOR, is_held
from cifar10.host.process import StopRequest, say
from cifar10.input import pipeline
from cifar10.input.records import RecordSet
from cifar10.output import checkpoints, metrics, model_settings, recovery, run_file
from cifar10.output.metrics import Metrics
from cifar10.output.run_file import Run
from cifar10.run.cluster_session import ClusterSession
from cifar10.run.job import Job, last_step, make_job
from cifar10.run.results import RESULT_NAME
from cifar10.run.training_hook import check_window
from cifar10.run.validation import ended_before
from cifar10.step.model_fn import variable_shapes

_MODEL = "model/"  # how the names of a model's variables begin


class Start(NamedTuple):
    """What a chief continues from, or that it begins.

    Attributes:
      checkpoint: the checkpoint's path; None: a new run begins.
      done: how far training had come.
      is_over: whether no step is left to train.
      values: the weights of --init-checkpoint by name; empty unless it is a new run's.
    """

    checkpoint: Optional[str]
    done: Done
    is_over: bool
    values: Mapping[str, Any]


def find_start(config: TrainConfig, records: RecordSet, cluster: Optional[Cluster]) -> Start:
    """Finds what this chief continues from, in folders that it has locked.

    Raises:
      UserError: no checkpoint is sound, that of --init-checkpoint does not fit, or training ends
        before --profile-steps.
    """
    place = config.output_place
    recovery.remove_unfinished(place)
    checkpoint = recovery.checkpoint_to_continue(place, say)
    done = checkpoints.read_done(checkpoint)
    last = last_step(config, cluster, records, done)
    check_window(config.profile_window, last)
    is_over = done.step >= last or ended_before(config, done.step) is not None
    values = {}
    if config.init_checkpoint is not None and checkpoint is None:
        classes = len(records.class_names)
        shapes = variable_shapes(config, classes)
        values = _read_weights(config.place(config.init_checkpoint), shapes, classes)
    return Start(checkpoint, done, is_over, values)


@contextlib.contextmanager
def joined(
    config: TrainConfig,
    records: RecordSet,
    cluster: Optional[Cluster],
    stop: StopRequest,
    start: Start,
) -> Iterator[Job]:
    """Yields the chief's job, in a cluster once the tasks that it needs have answered."""
    session = ClusterSession(config, cluster, records, stop, not start.is_over) if cluster else None
    with contextlib.closing(make_job(config, records, start.done, session)) as job:
        try:
            if session and not start.is_over:
                session.join(stop.check)
            is_listed = bool(cluster and cluster.has_evaluator)
            here = is_listed or is_held(config.output_place, EVALUATOR)
            yield dataclasses.replace(job, has_evaluator=here)
        except Stopped:
            if saved := checkpoints.latest(config.output_place):
                say(f"saved {saved}")  # The launcher reads this line.
            raise


def note_model(job: Job, start: Start) -> None:
    """Writes run.json; what an older run has left is renamed when a new one begins.

    Raises:
      ConfigError: the output folder has checkpoints of another model or of other classes.
      DamagedError: run.json is damaged.
    """
    model_settings.check_same(job.config, job.records.class_names)
    if start.checkpoint is None:  # Not earlier: a run that is refused changes no file.
        _set_older_aside(job.config.output_place)
    model_settings.write(job.config, job.records.class_names, resize=job.records.resize)


def _set_older_aside(output_dir: str) -> None:
    """Renames the files by which tasks know how an older run went.

    The owner stays: a master that is started again before its first checkpoint is the same one.
    """
    run = run_file.read(output_dir)
    rows = (metrics.FILE_NAME, metrics.EVALUATOR_FILE_NAME)
    names = (run_file.NAME, *rows, RESULT_NAME, *run_file.EARLIER)  # run.json is written next.
    paths = [tf.io.gfile.join(output_dir, name) for name in names]
    has_rows = any(exists(one) and tf.io.gfile.stat(one).length for one in paths[1:3])
    if not has_rows and not any((run.history or {}).values()):
        del paths[:3]  # They are of a start that failed before its first row.
    recovery.set_older_aside(paths, say)
    run_file.write(output_dir, Run(owner=run.owner))


def with_first_values(job: Job, start: Start) -> Job:
    """Adds the values that a new model starts from: of --init-checkpoint, or from the data.

    The splits for evaluation are read once, too, so that a damaged record is an error before the
    first step.
    """
    pipeline.check_evaluation(job.records)
    values = start.values or models.find(job.config.model).first_values(
        lambda count: pipeline.sample_images(job.records, job.config.seed, count)
    )
    return dataclasses.replace(job, params=dataclasses.replace(job.params, values_from_data=values))


def _read_weights(
    place: str, here: Mapping[str, tuple[int, ...]], num_classes: int
) -> dict[str, Any]:
    """Reads the model's weights and statistics that --init-checkpoint names, no optimizer's slots.

    What has one output per class starts anew where the checkpoint is of another number of classes:
    the last layer, and those of auxiliary heads. A line says what is taken.

    Args:
      place: the path of a checkpoint, or of a folder, whose best or else latest one is taken.
      here: the shapes of this model's weights and statistics by name, in the order of its layers.
      num_classes: the number of classes of this run.

    Returns:
      Arrays by the variable's name.

    Raises:
      ConfigError: there is no such checkpoint, it is damaged, or it is of another model.
      DamagedError: the best.json of its folder is damaged.
    """
    path: Optional[str] = place
    if not checkpoints.exists(place):
        kept = checkpoints.best(place)
        path = kept.path if kept else checkpoints.latest(place)
    fault = checkpoints.fault_of(path) if path else "no checkpoint, and no folder with any"
    if fault or not path:
        raise ConfigError(
            f"--init-checkpoint {path or place} cannot be used ({fault}); name a run's "
            "--output-dir, or a checkpoint without its ending, such as output/best/model.ckpt-80000"
        )
    reader = tf.train.NewCheckpointReader(path)
    there = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    # Not what an optimizer adds for a variable, whose name begins with the variable's.
    known = [one for one in there if one.startswith(_MODEL) and one.rpartition("/")[0] not in there]
    for name in (*here, *known):
        old, new = there.get(name), here.get(name)
        # A hidden layer of that width is none: the layer after it has other inputs, too.
        has_output_per_class = old and new == (*old[:-1], num_classes)
        if old != new and not has_output_per_class:
            raise ConfigError(
                f"--init-checkpoint {path} is of another model: {name} has the shape {old} there, "
                f"{new} here (None: there is none); give the flags that it was trained with, which "
                "its run.json or result.json names"
            )
    values = {name: reader.get_tensor(name) for name in here if here[name] == there.get(name)}
    anew = ", ".join(name for name in here if name not in values)
    say(f"{len(values)} weights and statistics are from {path}{anew and f', but not {anew}'}")
    return values


def prepare_folder(job: Job, start: Start) -> Metrics:
    """Makes the folder ready for training, and returns the rows up to `start`.

    What is unfit to continue from is renamed. Other tasks and people find the settings there.
    """
    place, step = job.config.output_place, start.done.step
    rows = Metrics(place, last_step=step)
    rows.save()
    run_file.write_training(place, not job.has_evaluator)
    validates = job.records.has_validation or job.has_evaluator
    recovery.settle_best(place, step, validates, say)
    return rows


def seen_by_worker(output_place: str) -> Done:
    """Returns how far training has come, as far as this worker can see.

    It sees nothing where it does not share the chief's output folder or may not read it, or where
    the newest checkpoint is damaged, for which the chief has to find another one.
    """
    try:
        return checkpoints.latest_done(output_place)
    except (UserError, tf.errors.OpError):
        return NOTHING_DONE


def step_of_end(config: TrainConfig, cluster: Cluster, records: RecordSet) -> Optional[int]:
    """Returns the step at which training has ended for good; None: it goes on, or nobody knows.

    A task that does not share the chief's output folder cannot see the end there. The chief judges
    by the same rows whether it goes on from that step.
    """
    step, done = None, seen_by_worker(config.output_place)
    with contextlib.suppress(tf.errors.PermissionDeniedError):
        note = run_file.read(config.output_place).training
        step = note["ended_at_step"] if note else None
    if step is None or step > done.step:
        return None  # A higher one is of an older run, whose checkpoints were removed.
    last = last_step(config, cluster, records, done)
    return step if step >= last or ended_before(config, step) else None
