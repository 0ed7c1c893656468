"""How long the pods of a deleted TFJob may take to end; all of it follows from `stop_secs`.

Kubernetes deletes all pods at once. In each it runs the preStop hook, sends SIGTERM, and kills
what is still there after the grace period, which began with the hook:

  pod           hook holds SIGTERM back for   then it may save for   grace period
  master/chief  0                             stop_secs              stop_secs
  evaluator     0                             stop_secs              stop_secs
  worker        5 s                           stop_secs              stop_secs + 5 s
  ps            at most stop_secs + 5 s       stop_secs              2 * stop_secs + 5 s
"""

import math

from launch.cluster.model import Limits

_WORKER_HOLD_SECS = 5  # in synchronous training the master's last step needs the workers
_NODE_SECS = 15  # for the nodes to end a pod after its grace period, and for word of it


def hold_secs(task_type: str, limits: Limits) -> int:
    """Returns for how many seconds the preStop hook may delay SIGTERM."""
    if task_type == "worker":
        return _WORKER_HOLD_SECS
    # A ps serves until the last of the others has ended: see `launch.backends.kubernetes.hold`.
    return grace_secs("worker", limits) if task_type == "ps" else 0


def grace_secs(task_type: str, limits: Limits) -> int:
    """The pod's `terminationGracePeriodSeconds`, which are whole."""
    return hold_secs(task_type, limits) + math.ceil(limits.stop_secs)


def overdue_secs(limits: Limits) -> int:
    """Returns after how many seconds from the deletion every pod should have ended."""
    return grace_secs("ps", limits) + _NODE_SECS
