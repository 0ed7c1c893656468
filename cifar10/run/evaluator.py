"""A separate evaluator, which validates new checkpoints until training is over.

Estimator's own evaluator ends only at a last step that it knows, so this has a loop of its own. It
shares only the output folder with training, so it never delays training, and nothing waits for it:
the chief validates its last checkpoint itself if the evaluator has not, evaluates and reports. That
training runs shows in the lock of the folder and, where locks prove nothing, in what changes.
"""

import time

import tensorflow.compat.v1 as tf

from cifar10 import guard
from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import TrainingError, UserError
from cifar10.guard import Guard, folder_lock
from cifar10.host.process import StopRequest, log
from cifar10.input.records import open_records
from cifar10.output import checkpoints, model_settings, run_file
from cifar10.output.folders import open_folders
from cifar10.output.metrics import EVALUATOR_FILE_NAME, Metrics
from cifar10.output.run_file import Training
from cifar10.run import start
from cifar10.run.job import Job, evaluation_input, make_job
from cifar10.run.validation import KeepBest
from cifar10.schema import VALIDATION
from cifar10.step.model_fn import model_fn

_POLL_SECS = 0.5


def evaluate_until_end(config: TrainConfig, cluster: Cluster, stop: StopRequest) -> None:
    """Validates each new checkpoint until training is over.

    Args:
      config: the settings.
      cluster: the addresses of all tasks, and which task this process is.
      stop: knows whether a signal has arrived.

    Raises:
      UserError: the data or the settings are wrong.
      TrainingError: no process trains in the output folder, for too long.
      Stopped: a signal arrived.
    """
    records, output_dir = open_records(config.data_path), config.output_path
    open_folders(config)
    with folder_lock.hold(output_dir, config.log_path, folder_lock.EVALUATOR, stop.check):
        job = make_job(config, records)
        log(f"evaluator of {output_dir}, {job.params.plan.summary}")
        earlier = run_file.read(output_dir).training  # If it tells of an end, training goes on ...
        if start.step_of_end(config, cluster, records) is not None:
            earlier = None  # ... unless it has ended for good, perhaps just now.
        validated, seen, trained_at = None, None, time.monotonic()
        with guard.of(job.params, None, records, stop) as guarded:
            while True:
                stop.check()
                state = run_file.read(output_dir).training
                checkpoint = checkpoints.latest(output_dir)
                earlier = earlier if state == earlier else None
                has_ended = state is not None and state["ended_at_step"] is not None
                if has_ended and not earlier:
                    break
                is_new = checkpoint != validated and records.has_validation
                if checkpoint and is_new and state and not state["master_validates"]:
                    _validate(job, checkpoint, state, guarded)
                    validated = checkpoint
                guarded.activity.begin(None)  # Waiting for checkpoints has a time limit of its own.
                trains = folder_lock.is_held(output_dir, folder_lock.TRAINING)
                if trains or seen != (state, checkpoint):
                    seen, trained_at = (state, checkpoint), time.monotonic()
                elif time.monotonic() - trained_at > config.cluster_timeout:
                    if has_ended:
                        break  # Training does not go on: this process was started again.
                    raise TrainingError(
                        f"no process has trained in {output_dir} for {config.cluster_timeout:g} s "
                        "(--cluster-timeout); give the evaluator the chief's --output-dir, or "
                        "start the training again, and then this task"
                    )
                time.sleep(_POLL_SECS)
        log("evaluator ends: training is over, and the chief evaluates and reports")


def _validate(job: Job, checkpoint: str, state: Training, guarded: Guard) -> None:
    """Validates a checkpoint, unless it has a validation or training removes it meanwhile.

    If the state of training is no longer `state` then, training is over, and the chief validates.
    """
    output_dir = job.config.output_path
    try:
        model_settings.check_classes(job.config, job.records.class_names)
        step = checkpoints.read_counter(checkpoint, "global_step")
        run_config = tf.estimator.RunConfig(session_config=job.params.plan.session_config)
        estimator = tf.estimator.Estimator(model_fn, output_dir, run_config, job.params)
        spec = tf.estimator.EvalSpec(
            lambda: evaluation_input(job, VALIDATION), None, VALIDATION, guarded.evaluation_hooks
        )
        KeepBest(job.params, Metrics(output_dir, EVALUATOR_FILE_NAME, step), log).validate(
            estimator, spec, checkpoint, lambda: run_file.read(output_dir).training == state
        )
    except (UserError, tf.errors.OpError, ValueError) as error:
        # A ValueError of TensorFlow's Saver says that the files are gone; others are mistakes.
        may_be_gone = not isinstance(error, ValueError) or "valid checkpoint" in str(error)
        if checkpoints.exists(checkpoint) or not may_be_gone:
            raise
