"""What goes wrong in a job of Kubernetes: a few things by chance, often at about the same time."""

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Optional

from tests.simulation.kubernetes_cluster import SimPod

if TYPE_CHECKING:
    from tests.simulation.kubernetes import KubernetesRun

_DRAIN = ("EvictionByEvictionAPI", "Eviction API: evicting")
_PREEMPTION = ("PreemptionByScheduler", "default-scheduler: preempting")


def draw_faults(run: "KubernetesRun") -> None:
    """Chooses what goes wrong, and when."""
    rng, cluster = run.world.rng, run.cluster
    kinds: list[Callable[[KubernetesRun], None]] = [
        _task_fails, _task_fails, _task_is_killed, _task_is_killed, _node_is_drained,
        _pod_is_preempted, _pod_is_evicted, _pod_is_deleted, _pod_vanishes,
        _job_is_deleted, _job_is_deleted, _api_is_down, _api_is_down,
        _controller_waits, _nobody_writes, _user_stops, _user_stops, _user_leaves,
        _launcher_pauses, _pod_vanishes_unseen, _ended_pods_are_removed,
    ]  # fmt: skip
    done = cluster.train_secs + cluster.figures_secs
    moment = rng.choice((rng.uniform(1, 30), cluster.train_secs, done, done + 1))
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 6))):
        at = moment + rng.choice((-3.0, -0.5, 0.0, 0.05, 0.5, 1.5, 4.0, 9.0))
        run.world.later(max(at, 0.5), rng.choice(kinds), run)


def _running(run: "KubernetesRun") -> Optional[SimPod]:
    pods = [pod for pod in run.cluster.pods.values() if pod.runs and pod.exists]
    return run.world.rng.choice(pods) if pods else None


def _task_fails(run: "KubernetesRun") -> None:
    pod = _running(run)
    if pod is not None:
        run.cluster.ended(pod, run.world.rng.choice((1, 1, 2, 3)), "own")


def _task_is_killed(run: "KubernetesRun") -> None:
    pod = _running(run)
    if pod is not None:
        run.cluster.ended(pod, run.world.rng.choice((134, 137, 139)), "own")


def _disrupt(run: "KubernetesRun", pod: SimPod, condition: tuple[str, str]) -> None:
    if pod.exists and not pod.has_ended and not pod.ender:
        run.cluster.harm()
        pod.condition = condition
        run.cluster.delete(pod, "platform")


def _node_is_drained(run: "KubernetesRun") -> None:
    node = run.world.rng.choice(("n1", "n2", "n3"))
    run.world.say(node, "is drained")
    for pod in list(run.cluster.pods.values()):
        if pod.node == node:
            run.world.later(run.world.rng.uniform(0, 1), _disrupt, run, pod, _DRAIN)


def _pod_is_preempted(run: "KubernetesRun") -> None:
    pod = _running(run)
    if pod is not None:
        _disrupt(run, pod, _PREEMPTION)


def _pod_is_evicted(run: "KubernetesRun") -> None:
    """Evicts a pod by its node."""
    pod, rng = _running(run), run.world.rng
    if pod is None or pod.ender:
        return
    run.cluster.harm()
    pod.evicted = "The node was low on memory."
    if rng.random() < 0.5:
        pod.condition = ("TerminationByKubelet", pod.evicted)
    run.cluster.ended(pod, rng.choice((None, 137)), "disrupted")


def _pod_is_deleted(run: "KubernetesRun") -> None:
    pod = _running(run)
    if pod is not None:
        run.cluster.harm()
        run.cluster.delete(pod, "somebody", run.world.rng.choice((None, 1.0)))


def _pod_vanishes(run: "KubernetesRun") -> None:
    """Deletes a pod by force: its object is gone at once."""
    pod = _running(run)
    if pod is not None and not pod.ender:
        run.cluster.harm()
        pod.ender, pod.why = "somebody", "deleted"
        run.cluster.remove(pod)
        pod.has_ended = True


def _pod_vanishes_unseen(run: "KubernetesRun") -> None:
    _api_is_down(run)
    run.world.later(1.0, _pod_vanishes, run)


def _ended_pods_are_removed(run: "KubernetesRun") -> None:
    """Removes pods that have ended, as the cluster does when there are many."""
    for job in run.cluster.jobs.values():
        for pod in job.pods if job.is_complete else ():
            if pod.has_ended:
                run.cluster.remove(pod)


def _job_is_deleted(run: "KubernetesRun") -> None:
    if run.cluster.exists:
        run.world.say("somebody deletes the Service")
        run.cluster.harm()
        run.cluster.delete_all("somebody")


def _api_is_down(run: "KubernetesRun") -> None:
    if run.cluster.pods:  # before the job exists, an error ends the run
        run.kubectl.go_down(run.world.rng.choice((1.0, 6.0, 20.0, 60.0)))


def _controller_waits(run: "KubernetesRun") -> None:
    run.cluster.controller_waits = run.world.now + run.world.rng.choice((3.0, 12.0))


def _nobody_writes(run: "KubernetesRun") -> None:
    run.world.say("the tasks hang")
    run.cluster.harm()
    run.cluster.is_silent = True


def _user_stops(run: "KubernetesRun") -> None:
    rng = run.world.rng
    signum = rng.choice((signal.SIGINT, signal.SIGINT, signal.SIGTERM))
    for i in range(rng.choice((1, 1, 2, 3))):
        run.world.later(i * rng.choice((0.01, 0.3, 3.0)), run.signal, signum)


def _user_leaves(run: "KubernetesRun") -> None:
    run.signal(signal.SIGHUP)


def _launcher_pauses(run: "KubernetesRun") -> None:
    secs = run.world.rng.choice((0.8, 4.0, 10.0))
    run.world.say("the launcher stands still for", secs)
    run.paused_until = run.world.now + secs
    run.paused_secs += secs
