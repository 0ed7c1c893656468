"""The command: parses the flags, finds the cluster, runs the role or mode; returns the exit code.

TensorFlow is imported only after the flags and the cluster have been checked.

Exit codes: 0 success; 1 training failed; 2 a mistake of the user, reported in one line; 128 + n
ended by signal n.
"""

import contextlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Optional

from cifar10.cluster import resolve
from cifar10.cluster.spec import EVALUATOR, MASTER, WORKER, Cluster, check_port, split_address
from cifar10.cluster.tf_config import TF_CONFIG, estimator_config
from cifar10.config import flags
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, Stopped, TrainingError, UserError, describe_error
from cifar10.host.process import GRACE_SECS, StopRequest, log, one_line
from cifar10_program.streams import log_error, open_streams

_NO_PROXY = "no_grpc_proxy"


def main(argv: Optional[Sequence[str]] = None, config_type: type[TrainConfig] = TrainConfig) -> int:
    """Runs the command and returns its exit code; signals are handled as before then.

    Args:
      argv: the arguments after the program's name; None: those of this process.
      config_type: the class of the settings; a subclass of TrainConfig may have more.
    """
    started = time.monotonic()
    open_streams()
    try:
        try:
            config = flags.parse(sys.argv[1:] if argv is None else argv, config_type)
        except BrokenPipeError:  # The reader of what a flag prints, such as `head`, has ended.
            return 0
        with prepared(config) as (cluster, stop):
            _run_role(config, cluster, stop, started)
    except (UserError, TrainingError, Stopped) as error:
        line, code = describe_error(error)
        if isinstance(error, Stopped) and error.saved:
            log(one_line(f"saved {error.saved}"))  # The launcher reads that line.
        log_error(one_line(line))
        return code
    return 0


@contextlib.contextmanager
def prepared(config: TrainConfig) -> Iterator[tuple[Optional[Cluster], StopRequest]]:
    """Prepares this process for a role or a mode; restores its signal handlers and warnings.

    Args:
      config: the settings.

    Yields:
      The cluster, None where this process works alone, and the signals that arrive meanwhile.

    Raises:
      ConfigError: this is no main thread, or the flags or TF_CONFIG describe no cluster.
      Stopped: a signal arrived.
    """
    if (thread := threading.current_thread()) is not threading.main_thread():
        rule = "training must run in the main thread, which gets signals"
        raise ConfigError(f"{rule}, not in {thread.name}; call it there, or start a process")
    cluster = resolve.resolve(config, os.environ)
    if cluster is not None:
        check_port(cluster)
    for note in resolve.notes(config, cluster):
        log(note)
    # Before any thread begins, since threads read the environment.
    _set_environment(cluster, config.replication == "in-graph")
    # Only training has something to save.
    stop = StopRequest(None if config.mode == "train_and_evaluate" else GRACE_SECS)
    with stop.installed(), tensorflow_loaded(config):
        yield None if cluster is None or cluster.is_single_process else cluster, stop
        stop.check()


def _set_environment(cluster: Optional[Cluster], in_graph: bool) -> None:
    """Sets what Estimator and gRPC read of the cluster."""
    os.environ.pop(TF_CONFIG, None)
    if for_estimator := estimator_config(cluster, in_graph):
        os.environ[TF_CONFIG] = for_estimator
    if cluster is not None and not cluster.is_single_process:
        # gRPC would ask the proxy of http_proxy, https_proxy or grpc_proxy for the other tasks,
        # also on this host. It alone reads no_grpc_proxy, and then no no_proxy.
        given = os.environ.get(_NO_PROXY, os.environ.get("no_proxy", ""))
        hosts = {split_address(task.address)[0]: None for task in cluster.tasks}
        os.environ[_NO_PROXY] = ",".join(filter(None, (given, *hosts)))


def _run_role(
    config: TrainConfig, cluster: Optional[Cluster], stop: StopRequest, started: float
) -> None:
    """Does the work of this process, from its start to its end; loads the modules for that."""
    if config.dry_run:
        from cifar10.dry_run import dry_run

        dry_run(config, stop)
    elif cluster is not None and cluster.task_type == EVALUATOR:
        from cifar10.run.evaluator import evaluate_until_end

        evaluate_until_end(config, cluster, stop)
    elif cluster and cluster.task_type == WORKER and config.replication == "between-graph":
        from cifar10.train import train_as_worker

        train_as_worker(config, cluster, stop)
    elif cluster is not None and cluster.task_type != MASTER:
        from cifar10.run.parameter_server import serve

        serve(config, cluster, stop)
    elif config.mode == "train_and_evaluate":
        from cifar10.train import train_and_evaluate

        train_and_evaluate(config, stop, started, cluster)
    elif config.mode == "evaluate":
        from cifar10.run.results import evaluate

        evaluate(config, stop)
    elif config.mode == "predict":
        from cifar10.run.predict import predict

        predict(config, stop)
    else:
        from cifar10.run.export import export_mode

        export_mode(config)


@contextlib.contextmanager
def tensorflow_loaded(config: TrainConfig) -> Iterator[None]:
    """Loads TensorFlow, silences its logs and Python's warnings, and translates its errors."""
    if os.path.expanduser("~") == "~":  # Keras would make a folder of that name here.
        os.environ.setdefault("KERAS_HOME", os.devnull)
    if not config.verbose:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # the log of C++ code
    with warnings.catch_warnings():
        if not config.verbose:
            warnings.filterwarnings("ignore")  # Python's; errors still raise.
        # Loading TensorFlow takes seconds; --help and a misspelt flag must not wait for it.
        import tensorflow.compat.v1 as tf

        from cifar10.tf_errors import clear_errors

        # By default, TensorFlow shows warnings but not Estimator's INFO lines.
        tf.logging.set_verbosity(tf.logging.INFO if config.verbose else tf.logging.FATAL)
        with clear_errors(config):
            yield
