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
from typing import Optional

from cifar10.cluster import resolve
from cifar10.cluster.spec import EVALUATOR, MASTER, WORKER, Cluster, check_port
from cifar10.cluster.tf_config import TF_CONFIG
from cifar10.config import flags
from cifar10.config.train_config import TrainConfig
from cifar10.errors import Stopped, TrainingError, UserError, last_words
from cifar10.host.process import STAY_SECS, StopRequest, one_line, say
from cifar10_program.streams import complain, open_streams


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
        config = flags.parse(words, config_type)
    except BrokenPipeError:  # The reader of what a flag prints, such as `head`, has ended.
        return 0
    except UserError as error:
        return _fail(error)
    # Only training has something to save.
    stop = StopRequest(None if config.mode == "train_and_evaluate" else STAY_SECS)
    stop.install()
    try:
        _run(config, _find_cluster(config), stop, started)
        stop.check()
    except (UserError, TrainingError, Stopped) as error:
        return _fail(error)
    return 0


def _fail(error: Exception) -> int:
    line, code = last_words(error)
    complain(one_line(line))
    return code


def _find_cluster(config: TrainConfig) -> Optional[Cluster]:
    cluster = resolve.resolve(config, os.environ)
    if cluster is not None:
        check_port(cluster)
    for note in resolve.notes(config, cluster):
        say(note)
    # Estimator would read TF_CONFIG, too, and it rejects some forms that platforms write.
    os.environ.pop(TF_CONFIG, None)
    return cluster


def _run(
    config: TrainConfig, cluster: Optional[Cluster], stop: StopRequest, started: float
) -> None:
    """Loads the modules that this process needs, and does its work from its start to its end."""
    # Loading TensorFlow takes seconds; --help and a misspelt flag must not wait for it.
    _load_tensorflow(config.verbose)
    from cifar10.run.tf_errors import clear_errors

    task = None if cluster is None or cluster.is_single_process else cluster
    with clear_errors(config):
        if task is not None and task.task_type == EVALUATOR:
            from cifar10.run.evaluator import evaluate_until_end

            evaluate_until_end(config, task, stop)
        elif task and task.task_type == WORKER and config.replication == "between-graph":
            from cifar10.train import train_as_worker

            train_as_worker(config, task, stop)
        elif task is not None and task.task_type != MASTER:
            from cifar10.run.parameter_server import serve

            serve(config, task, stop)
        elif config.mode == "train_and_evaluate":
            from cifar10.train import train_and_evaluate

            train_and_evaluate(config, stop, started, task)
        elif config.mode == "evaluate":
            from cifar10.run.results import evaluate

            evaluate(config, stop)
        elif config.mode == "predict":
            from cifar10.run.inference import predict

            predict(config, stop)
        else:
            from cifar10.run.inference import export_mode

            export_mode(config)


def _load_tensorflow(verbose: bool) -> None:
    """Silences TensorFlow's log and Python's warnings unless `verbose`; errors still raise."""
    if not verbose:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # of C++ code, read as it loads
        warnings.filterwarnings("ignore")
    import tensorflow.compat.v1 as tf

    # By default, TensorFlow shows warnings but not Estimator's INFO lines.
    tf.logging.set_verbosity(tf.logging.INFO if verbose else tf.logging.FATAL)
