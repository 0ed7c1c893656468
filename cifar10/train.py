"""Training: what a chief and a worker do, from records to results. Read this file first.

A process alone is a chief. In a cluster, the chief saves, validates and writes results, as the task
that Estimator calls `master` does; workers train with it, parameter servers hold the weights, and
an evaluator may validate meanwhile. Estimator, its specs and `tf.estimator.train_and_evaluate`
stand in `_train_as_chief`.

A run continues from its output folder by four rules:
1. From the newest checkpoint that is complete and finite, which Estimator restores; damaged ones
   are renamed. Without any, a new run begins, from --init-checkpoint if that is given.
2. Only with the model and the classes that run.json names; other records of them are allowed.
3. At the first image that the job has not seen, which the checkpoint counts; so do the curves.
4. If its last step is saved, or a stopping criterion was reached, only what is missing is made.

The chief saves when a session begins, every --checkpoint-steps and at the end, and validates what
it has saved unless an evaluator does. A run ends at its last step, at a stopping criterion, at
--max-minutes, by a signal, after which it saves, or by an error: a value that is not finite, a task
that is missing, a stall. Workers end at the last step or with the chief. What happens between two
steps is in `run/training_hook.py`, a step in `step/training_step.py`, and what watches a run in
`guard/`.
"""

import math
import time
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10 import guard
from cifar10.cluster.spec import PS, Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import TrainingOver
from cifar10.guard import Guard, folder_lock
from cifar10.host.process import StopRequest, log
from cifar10.input import pipeline
from cifar10.input.records import open_records
from cifar10.output import checkpoints
from cifar10.output.folders import open_folders
from cifar10.output.metrics import Metrics
from cifar10.output.progress import ProgressLine
from cifar10.output.training_progress import TrainingProgress
from cifar10.run import results, start
from cifar10.run.initial_weights import with_initial_weights
from cifar10.run.job import Job, describe_training, evaluation_input, make_job
from cifar10.run.training_hook import ChiefHook, Saver, Saving, WorkerHook, check_window
from cifar10.run.validation import KeepBest, StoppingCriteria, check_criteria, ended_before
from cifar10.schema import EVAL, TRAIN, VALIDATION
from cifar10.step.model_fn import model_fn
from cifar10.step.state import examples_seen

# The least time that a worker waits for a session of a chief that answers. The chief may be
# building its graph, and --cluster-timeout is for tasks that do not answer.
_LEAST_SESSION_SECS = 60


def train_and_evaluate(
    config: TrainConfig, stop: StopRequest, started: float, cluster: Optional[Cluster] = None
) -> None:
    """Trains, validates after each checkpoint, evaluates the best one, reports and exports.

    Args:
      config: the settings.
      stop: knows whether a signal has arrived.
      started: the time when the process started (`time.monotonic`), in seconds.
      cluster: the cluster whose chief this process is; None: it trains alone.

    Raises:
      UserError: the data or the settings are wrong.
      TrainingError: training failed, or a task that is needed does not answer in time.
      Stopped: a signal arrived; if training had begun, a checkpoint has been saved.
    """
    records = open_records(config.data_path, TRAIN, EVAL)
    check_criteria(config, records)
    open_folders(config)
    lock = folder_lock.hold(config.output_path, config.log_path, folder_lock.TRAINING, stop.check)
    with lock as check_owner:  # One run.
        checkpoint = start.find_start(config, records.class_names)  # Rules 1 and 2.
        job = make_job(config, records, checkpoints.read_position(checkpoint), cluster)
        step, last_step = job.params.position.step, job.params.total_steps
        check_window(config.profile_window, last_step)
        is_over = step >= last_step or ended_before(config, step) is not None
        if not is_over:
            # A damaged record is an error before the first step.
            pipeline.check_evaluation(records)
            job = with_initial_weights(job, checkpoint is None)
        stop.saved = checkpoint
        with guard.of(job.params, cluster, records, stop, trains=not is_over) as guarded:
            start.record_model(job, checkpoint is None)
            finished = results.describe_finished(config.output_path, step)
            if is_over and finished:  # Rule 4.
                guarded.tell_end()
                log(finished)
                return
            describe_training(job, guarded.describe(job.params.examples_per_step), is_over)
            job, metrics = start.prepare_folder(job)  # Rule 3, of the curves.
            deadline = started + 60.0 * (config.max_minutes or math.inf)
            status = _train_as_chief(job, guarded, checkpoint, metrics, deadline, check_owner)
            results.finish(job, guarded, metrics, status, time.monotonic() - started)


def _train_as_chief(
    job: Job,
    guarded: Guard,
    checkpoint: Optional[str],
    metrics: Metrics,
    deadline: float,
    check_owner: Callable[[], None],
) -> str:
    """Trains and validates, and tells the other tasks of the end; returns how training ended."""
    config, params, output_dir = job.config, job.params, job.config.output_path
    validates = job.records.has_validation and not job.has_evaluator
    first_step = params.position.step
    with ProgressLine(params.total_steps, params.total_epochs, start_step=first_step) as line:
        estimator = tf.estimator.Estimator(model_fn, config=run_config(job), params=params)
        progress = TrainingProgress(line, params, metrics)
        hook = ChiefHook(params, guarded.stop, progress, deadline)  # Measures, records, ends.
        saver = Saver(
            hook,
            checkpoint_dir=output_dir,
            save_steps=config.steps_between_checkpoints(params.total_steps, params.total_epochs),
            listeners=[guarded.saving, Saving(hook, check_owner)],
            save_graph_def=False,
        )
        criteria = StoppingCriteria(config, lambda: hook.saved_step, line.show)
        # In this order: a step is recorded before it is saved, and its validation is judged after.
        hooks = [*guarded.hooks, hook, saver, criteria]
        # No max_steps: `hook` ends training, at the last step or before.
        train_spec = tf.estimator.TrainSpec(lambda: training_input(job), hooks=hooks)
        # An Exporter since Estimator calls those after each validation. It exports no SavedModel,
        # which `results.finish` does once.
        keep_best = KeepBest(params, metrics, line.show)
        eval_spec = tf.estimator.EvalSpec(
            lambda: evaluation_input(job, VALIDATION),
            steps=None,  # All validation images ...
            name=VALIDATION,
            hooks=guarded.evaluation_hooks,
            exporters=keep_best,
            start_delay_secs=0,
            throttle_secs=0,  # ... after each checkpoint.
        )
        if validates:
            hook.take_back = keep_best.take_back
            # A run may have been killed after it saved this checkpoint.
            keep_best.validate(estimator, eval_spec, checkpoint)
        criteria.judge()
        # Rule 4; the validation above may have reached a criterion.
        goes_on = first_step < params.total_steps and not criteria.ending
        if goes_on and validates:
            # In a cluster, too, it is Estimator's local mode: the chief's RunConfig has the target
            # of its sessions, but no cluster (`cluster/tf_config.py`, `estimator_config`).
            tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
        elif goes_on:  # A separate evaluator validates, or there is nothing to validate on.
            estimator.train(train_spec.input_fn, train_spec.hooks)
        guarded.stop.check()
        status = criteria.ending.status if criteria.ending else hook.status
        # Before the last validation, for which no other task is needed: by this record, the
        # evaluator ends, and so do tasks that start again meanwhile.
        start.record_end(job, status)
        guarded.tell_end()
        if job.records.has_validation:  # Nobody waits for an evaluator's last validation.
            latest = checkpoints.latest(output_dir)
            metrics.read_others(checkpoints.read_position(latest).step)
            keep_best.validate(estimator, eval_spec, latest)
        guarded.stop.check()
        criteria.judge()
        if criteria.ending and criteria.ending.status != status:  # By the last validation.
            status = criteria.ending.status
            start.record_end(job, status)
        return status


def train_as_worker(config: TrainConfig, cluster: Cluster, stop: StopRequest) -> None:
    """Trains with the chief, which saves and validates; raises what `train_and_evaluate` does."""
    records = open_records(config.data_path, TRAIN)
    steps = 0

    def check() -> None:
        """Ends the waiting for other tasks where it is useless."""
        stop.check()
        end = start.step_of_end(config, cluster, records)
        if end is not None:
            raise TrainingOver(end)

    try:
        check()
        position = start.position_seen_by_worker(config.output_path)
        job = make_job(config, records, position, cluster)
        alone = folder_lock.hold_worker(config.output_path, cluster.own.role, check)
        # The second: the chief has made its folder before it answers.
        with guard.of(job.params, cluster, records, stop, check=check) as guarded, alone:
            steps, ending = _train_with_chief(job, guarded)
    except TrainingOver as over:  # Before this worker had joined.
        ending = str(over)
    log(f"{cluster.label} ends: {ending}; it trained {steps:,} steps")


def _train_with_chief(job: Job, guarded: Guard) -> tuple[int, str]:
    """Trains as a worker; returns the number of steps that it took, and why it ends."""
    params = job.params
    describe_training(job, guarded.describe(params.examples_per_step))
    with ProgressLine(params.total_steps, params.total_epochs) as line:
        estimator = tf.estimator.Estimator(model_fn, config=run_config(job), params=params)
        progress = TrainingProgress(line, params)
        hook = WorkerHook(params, guarded.stop, progress)
        ending = "training is over"
        try:
            # tf.estimator.train_and_evaluate would start a second server at this task's address,
            # wait five seconds for each worker up to this one, and then make exactly this call.
            estimator.train(lambda: training_input(job), hooks=[*guarded.hooks, hook])
        except TrainingOver as over:  # A session that was made anew found it so.
            ending = str(over)
    guarded.stop.check()
    return progress.steps, ending


def run_config(job: Job) -> Any:
    """Returns the RunConfig of training, which reads the TF_CONFIG that `cifar10.main` has set."""
    config, cluster, session_config = job.config, job.cluster, tf.ConfigProto()
    session_config.CopyFrom(job.params.plan.session_config)
    in_cluster: dict[str, Any] = {}
    if cluster:
        if config.replication != "in-graph":
            # Sessions see only the tasks they need: they would wait for all that they see.
            session_config.device_filters.extend([f"/job:{PS}", cluster.own.device])
        # It places plain variables on the first parameter server.
        in_cluster["device_fn"] = tf.train.replica_device_setter(
            len(cluster.of(PS)), worker_device=cluster.own.device, ps_strategy=lambda op: 0
        )
        timeout_secs = max(_LEAST_SESSION_SECS, int(config.cluster_timeout) + 1)
        in_cluster["session_creation_timeout_secs"] = timeout_secs
    return tf.estimator.RunConfig(
        model_dir=config.output_path,
        tf_random_seed=config.seed,
        session_config=session_config,
        # The hooks of `_train_as_chief` save, and write summaries and speed to --log-dir.
        save_checkpoints_secs=None,
        save_summary_steps=0,
        log_step_count_steps=None,
        **in_cluster,
    )


def training_input(job: Job) -> Any:
    """Returns this process's batches, beginning with the first image that the job has not seen."""
    replication = job.params.replication
    return pipeline.training_batches(
        job.records,
        job.config,
        job.params.batch_size,
        # Read when a session begins, after a checkpoint has been restored.
        start=examples_seen(replication.variable_devices[0]).read_value(),
        num_replicas=replication.num_replicas,
        replica=replication.replica,
    )
