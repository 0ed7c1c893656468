"""A separate evaluator, which validates new checkpoints until training is over.

The evaluator shares only the output folder with training, so it never delays training, and nothing
waits for it: the chief validates its last checkpoint itself if the evaluator has not, and makes the
figures.
"""

import contextlib
import time
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster import identity
from cifar10.cluster.acquaintance import Acquaintance
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.spec import MASTER, Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, DamagedError, TrainingError, UserError
from cifar10.host import folder_lock
from cifar10.host.console import say
from cifar10.host.signals import StopRequest
from cifar10.input.records import open_records
from cifar10.output import checkpoints, model_settings, recovery, run_owner, run_status
from cifar10.output.history import VALIDATION_FILE_NAME, History, validations
from cifar10.output.metrics import EVALUATOR_FILE_NAME
from cifar10.run import goals
from cifar10.run.hooks.validation import ValidationRecorder
from cifar10.run.job import Job, last_step, open_output, start_job
from cifar10.run.stall_watch import StallWatch
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
        run_status.touch_mark(config.output_place)
        try:
            job = start_job(config, records)
            say(f"evaluator of {config.output_place}, {job.plan.summary}")
            watch = StallWatch(job.activity, config.stall_timeout)
            with watch, contextlib.closing(_Run(job, stop, cluster)) as run:
                run.follow()
            say("evaluator ends: training is over, and the chief makes the figures")
        finally:
            run_status.remove_mark(config.output_place)


class _Run:
    """The evaluation of one run's checkpoints, in its output folder."""

    def __init__(self, job: Job, stop: StopRequest, cluster: Cluster) -> None:
        place = job.config.output_place
        self._mark = run_status.Mark(place)
        self.job, self._stop = job, stop
        step = checkpoints.latest_step(place)
        self.history = recovery.load_history(place, step, say, VALIDATION_FILE_NAME)
        path = tf.io.gfile.join(job.config.log_place, EVALUATOR_FILE_NAME)
        self.history.metrics = recovery.load_metrics(path, checkpoints.latest(place), step, say)
        self._recorder = ValidationRecorder(
            self.job, self.history, say, self._seconds_of_training, [self._mark]
        )
        self._changed = time.monotonic()
        self._checked: Optional[str] = None  # the checkpoint before which the classes were compared
        self._cluster, self._said_where = cluster, False
        self._earlier = self._note_of_an_earlier_start()
        self._acquaintance = Acquaintance(cluster, [cluster.master_label])
        # A process that trains alone opens no port for an evaluator that it does not know.
        is_hidden = cluster.is_alone and not cluster.evaluator_address
        addresses = {} if is_hidden else {cluster.master_label: cluster.address_of(MASTER, 0)}
        self._masters = list(addresses)
        self._monitor = LivenessMonitor(addresses, job.config.cluster_timeout, self._meet)

    def follow(self) -> None:
        """Validates new checkpoints until training is over."""
        self._monitor.start()
        while True:
            self._stop.check()
            self._mark.keep()
            note = run_status.read(self.job.config.output_place)
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

    def _note_of_an_earlier_start(self) -> Optional[dict[str, Any]]:
        """Returns the final run status of a run that goes on now; None if there is none."""
        config, place = self.job.config, self.job.config.output_place
        note = run_status.read(place)
        if note is None or not _is_over(note):
            return None
        if self._is_saved(note):  # If not, its checkpoints were removed.
            step, done = note["ended_at_step"], checkpoints.latest_done(place)
            last = last_step(config, self._cluster, self.job.records, done)
            if step >= last or goals.ended_before(config, step):
                return None
        return note

    def _is_saved(self, note: dict[str, Any]) -> bool:
        """Returns whether the last step of a final run status has a checkpoint."""
        return int(note["ended_at_step"]) <= checkpoints.latest_step(self.job.config.output_place)

    def _seconds_of_training(self, step: int) -> float:
        """Returns the seconds of training up to a step, which the master has written."""
        try:
            return History.load(self.job.config.output_place, step).seconds
        except DamagedError:  # The master renames a damaged file when it starts.
            rows = self.history.validation
            return float(rows[-1]["seconds"]) if rows else 0.0

    def close(self) -> None:
        """Ends the thread that asks the master."""
        self._monitor.stop()

    def _meet(self, label: str) -> bool:
        """Returns whether the master has answered; raises ConfigError if it is another run's.

        What connects an evaluator with a run is the output folder, so the master's must be it.
        """
        if not self._acquaintance.meet(label):
            return False
        owner = self._acquaintance.identity.owner
        number = run_owner.read(self.job.config.output_place)
        if owner and number and not self._cluster.token and identity.digest(number) != owner.digest:
            raise ConfigError(self._where("trains another run", owner))
        return True

    def _where(self, finding: str, owner: identity.Owner) -> str:
        """Returns a finding about the master, with its output folder and this evaluator's."""
        master, own = self._cluster.master_label, run_owner.place(self.job.config.output_place)
        return (
            f"{master} ({self._cluster.address_of(MASTER, 0)}) {finding}: its output folder is "
            f"{owner.place}, but this evaluator's is {own}; both need the same: correct the "
            "address, or give the evaluator the master's --output-dir"
        )

    def _validate_latest(self, note: Optional[dict[str, Any]]) -> None:
        if note is None or note["master_validates"] or not self.job.records.has_validation:
            return
        place = self.job.config.output_place
        checkpoint = checkpoints.latest(place)
        if checkpoint is None:
            return
        if checkpoint != self._checked:  # model.json is there before the first one
            model_settings.check_classes(self.job.config, self.job.class_names)
            self._checked = checkpoint
        if not tf.io.gfile.exists(tf.io.gfile.join(place, VALIDATION_FILE_NAME)):
            # A new run may have begun, which has renamed the file.
            self.history.validation = validations(place, checkpoints.latest_step(place))
        try:
            if self._recorder.validate_if_missing(checkpoint, self._stop, self._records_still):
                self._changed = time.monotonic()
        except (UserError, tf.errors.NotFoundError, ValueError):  # ValueError: it is gone already.
            if checkpoints.exists(checkpoint):
                raise
            # Training has removed this checkpoint in the meantime, and there is a newer one.

    def _records_still(self) -> bool:
        """Returns whether a validation may be recorded; once training is over, the chief does."""
        note = run_status.read(self.job.config.output_place)
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
        self._monitor.refuse_wrong(self._masters)
        owner = self._acquaintance.identity.owner
        if is_late and owner and not self._said_where:
            has_files = checkpoints.latest(place) or run_status.read(place) or run_owner.read(place)
            if not has_files:
                finding = f"has answered, but for {timeout:g} s no checkpoint has appeared"
                say(self._where(finding, owner))
                self._said_where = True
        return self._monitor.missing(self._masters)


def _is_over(note: Optional[dict[str, Any]]) -> bool:
    """Returns whether a run status says that training is over."""
    return note is not None and note["ended_at_step"] is not None
