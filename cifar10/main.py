"""The command: parses the flags, finds the cluster, runs the role or mode; returns the exit code.

TensorFlow is imported only after the flags and the cluster have been checked.

Exit codes: 0 success; 1 training failed; 2 a mistake of the user, reported in one line; 128 + n
ended by signal n.
"""

import os
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Callable, Optional

from cifar10.cluster import resolve
from cifar10.cluster.spec import EVALUATOR, MASTER, WORKER, Cluster, check_own_address
from cifar10.cluster.tf_config import TF_CONFIG
from cifar10.config import flags
from cifar10.config.train_config import TrainConfig
from cifar10.errors import Stopped, TrainingError, UserError
from cifar10.host import garbage
from cifar10.host.console import one_line, say
from cifar10.host.signals import STAY_SECS, StopRequest
from cifar10.tf_internals import silence_native_log
from cifar10_program.streams import complain, open_streams

_Work = Callable[[StopRequest, float], None]  # takes the time when the process started, too


def main(argv: Optional[Sequence[str]] = None, config_type: type[TrainConfig] = TrainConfig) -> int:
    """Runs the command and returns its exit code.

    Args:
      argv: the arguments after the program's name; None: those of this process.
      config_type: the class of the settings; a subclass of TrainConfig may have more.
    """
    started = time.monotonic()
    open_streams()
    try:
        words = sys.argv[1:] if argv is None else argv
        config = resolve.with_model_dir(flags.parse(words, config_type), os.environ)
    except BrokenPipeError:  # The reader of what a flag prints, such as `head`, has ended.
        return 0
    except UserError as error:
        return _refuse(error)
    # Only training has something to save.
    stop = StopRequest(None if config.mode == "train_and_evaluate" else STAY_SECS)
    stop.install()
    try:
        _run(config, _find_cluster(config), stop, started)
        stop.check()
    except UserError as error:
        return _refuse(error)
    except TrainingError as error:
        complain(f"training failed: {one_line(str(error))}")
        return 1
    except Stopped as error:
        complain(str(error))
        return 128 + error.signum
    return 0


def _refuse(error: UserError) -> int:
    complain(f"error: {one_line(str(error))}")
    return 2


def _find_cluster(config: TrainConfig) -> Optional[Cluster]:
    cluster = resolve.resolve(config, os.environ)
    if cluster is not None:
        check_own_address(cluster, config.check_address)
    for note in resolve.notes(config, cluster):
        say(note)
    # Estimator would read TF_CONFIG, too, and it rejects some forms that platforms write.
    os.environ.pop(TF_CONFIG, None)
    return cluster


def _run(
    config: TrainConfig, cluster: Optional[Cluster], stop: StopRequest, started: float
) -> None:
    # Loading TensorFlow takes seconds; --help and a misspelt flag must not wait for it.
    with garbage.modules_stay():
        _quieten(config.verbose)
        from cifar10.run.tf_errors import clear_errors

        work = _load(config, cluster)
    with clear_errors(config):
        work(stop, started)


def _load(config: TrainConfig, cluster: Optional[Cluster]) -> _Work:
    """Loads the modules that this process needs; returns what it does from its start to its end."""
    task = None if cluster is None or cluster.is_single_process else cluster
    if task is not None and task.task_type == EVALUATOR:
        from cifar10.run.evaluator import evaluate_until_end

        return lambda stop, _: evaluate_until_end(config, task, stop)
    if task is not None and task.task_type == WORKER and config.replication == "between-graph":
        from cifar10.train import train_as_worker

        return lambda stop, _: train_as_worker(config, task, stop)
    if task is not None and task.task_type != MASTER:
        from cifar10.run.parameter_server import serve

        return lambda stop, _: serve(config, task, stop)
    if config.mode == "train_and_evaluate":
        from cifar10.train import train_and_evaluate

        return lambda stop, started: train_and_evaluate(config, stop, started, task)
    if config.mode == "evaluate":
        from cifar10.run.evaluate import evaluate

        return lambda stop, _: evaluate(config, stop)
    if config.mode == "predict":
        from cifar10.run.inference import predict

        return lambda stop, _: predict(config, stop)
    from cifar10.run.inference import export_mode

    return lambda *_: export_mode(config)


def _quieten(verbose: bool) -> None:
    """Silences TensorFlow's log and Python's warnings unless `verbose`; errors still raise."""
    if not verbose:
        silence_native_log()
        warnings.filterwarnings("ignore")
    import tensorflow.compat.v1 as tf

    # By default, TensorFlow shows warnings but not Estimator's INFO lines.
    tf.logging.set_verbosity(tf.logging.INFO if verbose else tf.logging.FATAL)
