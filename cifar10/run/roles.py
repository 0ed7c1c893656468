"""One task of a cluster: what it does by its role."""

from cifar10.cluster.spec import EVALUATOR, MASTER, WORKER, Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.host.signals import StopRequest


def run_task(config: TrainConfig, cluster: Cluster, stop: StopRequest, started: float) -> None:
    """Runs this process's task to its end.

    Args:
      config: the settings.
      cluster: the tasks, and which of them this is.
      stop: says whether a signal came.
      started: when the process started (`time.monotonic`).

    Raises:
      UserError: the data or the settings are wrong.
      TrainingError: training failed, or a task that is needed stays away.
      Stopped: a signal came.
    """
    if cluster.task_type == MASTER:
        from cifar10.run.master import train_and_evaluate

        train_and_evaluate(config, stop, started, cluster)
    elif cluster.task_type == EVALUATOR:
        from cifar10.run.evaluator import evaluate_until_end

        evaluate_until_end(config, cluster, stop, started)
    elif cluster.task_type == WORKER and config.replication == "between-graph":
        from cifar10.run.worker import train

        train(config, cluster, stop)
    else:
        from cifar10.run.parameter_server import serve

        serve(config, cluster, stop)
