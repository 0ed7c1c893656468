"""A separate evaluator, which validates new checkpoints until training is over.

The evaluator shares only the output folder with training, so it never delays training, and nothing
waits for it: the chief validates its last checkpoint itself if the evaluator has not, and makes the
figures.
"""

import contextlib
import time
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster.acquaintance import Acquaintance
from cifar10.cluster.identity import Identity, digest
from cifar10.cluster.peers import Peers
from cifar10.cluster.spec import Cluster, Task
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, TrainingError, UserError
from cifar10.host import folder_lock
from cifar10.host.console import say
from cifar10.host.signals import StopRequest
from cifar10.input.records import open_records
from cifar10.output import checkpoints, model_settings, run_file
from cifar10.output.history import EVALUATOR_FILE_NAME, History, Metrics, validations
from cifar10.output.run_file import Training
from cifar10.run import goals
from cifar10.run.hooks.validation import ValidationRecorder
from cifar10.run.job import Job, last_step, open_output, start_job
from cifar10.schema import EVAL

_POLL_SECS = 0.5


def evaluate_until_end(config: TrainConfig, cluster: Cluster, stop: StopRequest) -> None:
    """Validates checkpoints until training is over.

    Args:
      config: the settings.
      cluster: the addresses of all tasks, and which task this process is.
      stop: knows whether a signal has arrived.

    Raises:
      UserError: the data or the settings are wrong.
      TrainingError: the master does not answer, or there is no new checkpoint, for too long.
      Stopped: a signal arrived.
    """
    records = open_records(config.data_place)
    records.require(EVAL)
    open_output(config)
    with folder_lock.hold(config.output_place, config.log_place, folder_lock.EVALUATOR, stop.check):
        job = start_job(config, records)
        say(f"evaluator of {config.output_place}, {job.plan.summary}")
        with job.watch_progress(), contextlib.closing(_Run(job, stop, cluster)) as run:
            run.follow()
        say("evaluator ends: training is over, and the chief makes the figures")


class _Run:
    """The evaluation of one run's checkpoints, in its output folder."""

    def __init__(self, job: Job, stop: StopRequest, cluster: Cluster) -> None:
        place = job.config.output_place
        self.job, self._stop = job, stop
        step = checkpoints.latest_step(place)
        self.history = History(None)
        self._load_rows(step)
        self._recorder = ValidationRecorder(self.job, self.history, say, self._seconds_of_training)
        self._changed = time.monotonic()
        self._checked: Optional[str] = None  # the checkpoint before which the classes were compared
        self._cluster, self._said_where = cluster, False
        self._earlier = self._note_of_an_earlier_start()
        self._acquaintance = Acquaintance(cluster, [cluster.master])
        # A process that trains alone opens no port for an evaluator that it does not know.
        is_hidden = cluster.is_alone and not cluster.evaluator_address
        self._masters = [] if is_hidden else [cluster.master]
        self._peers = Peers(self._masters, job.config.cluster_timeout, self._meet)

    def follow(self) -> None:
        """Validates new checkpoints until training is over."""
        self._peers.start()
        while True:
            self._stop.check()
            note = run_file.read(self.job.config.output_place).training
            if _is_over(note) and note != self._earlier:
                return
            if note != self._earlier:
                self._earlier = None  # The master has started; if it ends likewise, it has ended.
            self._validate_latest(note)
            self.job.activity.begin(None)  # Waiting for checkpoints has a time limit of its own.
            late = self._why_training_is_missing()
            if late and self._earlier and self._is_saved(self._earlier):
                return  # Training does not go on: this process was started again.
            if late:
                raise TrainingError(late)
            time.sleep(_POLL_SECS)

    def _note_of_an_earlier_start(self) -> Optional[Training]:
        """Returns the final run status of a run that goes on now; None if there is none."""
        config, place = self.job.config, self.job.config.output_place
        note = run_file.read(place).training
        if note is None or note["ended_at_step"] is None:
            return None
        if self._is_saved(note):  # If not, its checkpoints were removed.
            step, done = note["ended_at_step"], checkpoints.latest_done(place)
            last = last_step(config, self._cluster, self.job.records, done)
            if step >= last or goals.ended_before(config, step):
                return None
        return note

    def _is_saved(self, note: Training) -> bool:
        """Returns whether the last step of a final run status has a checkpoint."""
        return (note["ended_at_step"] or 0) <= checkpoints.latest_step(self.job.config.output_place)

    def _load_rows(self, step: int) -> None:
        """Reads this process's rows up to a step, and the validations of both processes."""
        place = self.job.config.output_place
        self._path = tf.io.gfile.join(place, EVALUATOR_FILE_NAME)
        latest = checkpoints.latest(place)
        self.history.metrics = Metrics.load(self._path, latest, step, say)
        self.history.validation = validations(place, step)

    def _seconds_of_training(self, step: int) -> float:
        """Returns the seconds of training up to a step, which the master has written."""
        return History.load(self.job.config.output_place, step).seconds

    def close(self) -> None:
        """Ends the thread that asks the master."""
        self._peers.stop()

    def _meet(self, master: Task) -> bool:
        """Returns whether the master has answered; raises ConfigError if it is another run's.

        What connects an evaluator with a run is the output folder, so the master's must be it.
        """
        if not self._acquaintance.meet(master):
            return False
        own, number = self._acquaintance.identity, run_file.read(self.job.config.output_place).owner
        if own.run and number and not own.token and digest(number) != own.run:
            raise ConfigError(self._where("trains another run", own))
        return True

    def _where(self, finding: str, found: Identity) -> str:
        """Returns a finding about the master, with its output folder and this evaluator's."""
        own = run_file.place(self.job.config.output_place)
        return (
            f"{self._cluster.master} {finding}: its output folder is {found.place}, but this "
            f"evaluator's is {own}; both need the same: correct the address, or give the "
            "evaluator the master's --output-dir"
        )

    def _validate_latest(self, note: Optional[Training]) -> None:
        if note is None or note["master_validates"] or not self.job.records.has_validation:
            return
        place = self.job.config.output_place
        checkpoint = checkpoints.latest(place)
        if checkpoint is None:
            return
        if checkpoint != self._checked:  # run.json is there before the first one
            model_settings.check_classes(self.job.config, self.job.class_names)
            self._checked = checkpoint
        if not tf.io.gfile.exists(self._path):
            # A new run may have begun, which has renamed the file.
            self._load_rows(checkpoints.latest_step(place))
        try:
            if self._recorder.validate_if_missing(checkpoint, self._stop, self._records_still):
                self._changed = time.monotonic()
        except (UserError, tf.errors.NotFoundError, ValueError):  # ValueError: it is gone already.
            if checkpoints.exists(checkpoint):
                raise
            # Training has removed this checkpoint in the meantime, and there is a newer one.

    def _records_still(self) -> bool:
        """Returns whether a validation may be recorded; once training is over, the chief does."""
        note = run_file.read(self.job.config.output_place).training
        return not _is_over(note) or note == self._earlier

    def _why_training_is_missing(self) -> Optional[str]:
        """Returns a line if the master, or else a new checkpoint, is missing for too long.

        If the master has answered but nothing of it has appeared, it says once where it looks.
        """
        place, timeout = self.job.config.output_place, self.job.config.cluster_timeout
        is_late = time.monotonic() - self._changed > timeout
        if not self._masters:
            line = (
                f"no new checkpoint in {place} for {timeout:g} s (--cluster-timeout); start the "
                "training again, and then this task"
            )
            return line if is_late else None
        self._peers.refuse_wrong(self._masters)
        found = self._acquaintance.identity
        if is_late and found.run and not self._said_where:
            run = run_file.read(place)
            if not (checkpoints.latest(place) or run.training or run.owner):
                finding = f"has answered, but for {timeout:g} s no checkpoint has appeared"
                say(self._where(finding, found))
                self._said_where = True
        return self._peers.missing(self._masters)


def _is_over(note: Optional[Training]) -> bool:
    """Returns whether a run status says that training is over."""
    return note is not None and note["ended_at_step"] is not None
