"""Computes from `stop_secs` how long the pods of a deleted TFJob may take to end.

Kubernetes deletes all pods at once. In each pod it runs the preStop hook, sends SIGTERM, and sends
SIGKILL at the end of the grace period, which begins with the hook:

  pod           delay of SIGTERM by the hook   time to save   grace period
  master/chief  0                              stop_secs      stop_secs
  evaluator     0                              stop_secs      stop_secs
  worker        5 s                            stop_secs      stop_secs + 5 s
  ps            at most stop_secs + 5 s        stop_secs      2 * stop_secs + 5 s

Fractions of a second are rounded up.
"""

import math

from launch.cluster.model import Limits

_WORKER_HOLD_SECS = 5  # in synchronous training the master's last step needs the workers
_NODE_SECS = 15  # for nodes to end a pod after its grace period, and to report its end


def hold_secs(task_type: str, limits: Limits) -> int:
    """Returns the maximum delay of SIGTERM by the preStop hook, in seconds."""
    if task_type == "worker":
        return _WORKER_HOLD_SECS
    # A ps serves until the last of the others has ended: see `launch.backends.kubernetes.hold`.
    return grace_secs("worker", limits) if task_type == "ps" else 0


def grace_secs(task_type: str, limits: Limits) -> int:
    """Returns the pod's `terminationGracePeriodSeconds`, a whole number."""
    return hold_secs(task_type, limits) + math.ceil(limits.stop_secs)


def overdue_secs(limits: Limits) -> int:
    """Returns the seconds after the deletion within which every pod should have ended."""
    return grace_secs("ps", limits) + _NODE_SECS
