"""Runs a TFJob: creates it, follows it with kubectl's watches and logs, and deletes it."""

import json
import queue
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from launch.backends.kubernetes import manifests
from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.kubectl import Kubectl, Stream, connect, watch_events
from launch.backends.kubernetes.logs import PodLogs
from launch.backends.kubernetes.manifests import Manifest
from launch.backends.kubernetes.pods import read_pod
from launch.backends.kubernetes.settings import settings_of
from launch.cluster.job_token import with_token
from launch.cluster.tasks import Job
from launch.errors import HostError
from launch.record.outcome import Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.run import passed_values
from launch.supervise.run_loop import RunLoop, stop_signals

_AGAIN_SECS = 1.0  # between the end of a watch and the next one
_EVENTS_SECS = 10.0  # between two requests for events, which say why pods wait
_BACKLOG = 10_000  # items of streams; when the queue is full, streams wait
_TFJOBS, _PODS = "tfjobs.kubeflow.org", "pods"

Event = tuple[Stream, Any]  # a stream and its item; the item is None at the stream's end


def run(job: Job, folder: RunFolder, display: Display) -> Outcome:
    """Creates the job, follows it to its end, and deletes it.

    Raises:
      LaunchError: the description of the cluster names hosts, or a variable to pass to the tasks is
        not set in this process.
      HostError: the cluster refuses the job, or kubectl fails later.
    """
    job, settings = with_token(job), settings_of(job.cluster)
    passed = passed_values(job.cluster.passed)
    manifest = manifests.tfjob(job, f"{settings.name}-{folder.run_id}")
    kubectl = connect(settings)
    name = manifest["metadata"]["name"]
    place = {"context": kubectl.context, "namespace": kubectl.namespace, "name": name}
    folder.add(kubernetes=place)
    with stop_signals() as signals:
        follower = Follower(job.tasks, job.cluster.limits, job.cluster.restarts, time.monotonic())
        events: queue.Queue[Event] = queue.Queue(_BACKLOG)
        loop = RunLoop(follower, folder, display, events, signals, keeps_logs=True)
        secrets = [value for value in passed.values() if len(value) >= 6]
        values = {**dict(job.cluster.environment), **passed}
        helpers = [manifests.network_policy(job, name), manifests.secret(job, name, values)]
        tfjob = _TFJob(kubectl, manifest, helpers, follower, loop, secrets)
        try:
            return loop.run(tfjob)
        finally:
            tfjob.close(folder.run_id)


class _TFJob:
    """Reports the TFJob's changes to the follower, and deletes the TFJob when the follower says so.

    Args:
      kubectl: runs kubectl for the job's cluster and namespace.
      manifest: the manifest of the TFJob.
      helpers: the manifests of the objects that the job's pods need from the start.
      follower: the object that decides how the job ends.
      loop: the run loop, which takes the tasks' lines and notes for the user.
      secrets: values to mask in the tasks' lines.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        manifest: Manifest,
        helpers: Sequence[Manifest],
        follower: Follower,
        loop: RunLoop[Event],
        secrets: Sequence[str],
    ) -> None:
        self._kubectl, self._manifest, self._helpers = kubectl, manifest, helpers
        self._name, self._secrets = manifest["metadata"]["name"], secrets
        self._follower, self._loop = follower, loop
        self._logs = PodLogs(kubectl, self._put)
        self._watches: dict[str, Stream] = {}
        self._due = {_PODS: 0.0, _TFJOBS: 0.0}
        self._next_events = time.monotonic() + _EVENTS_SECS
        self._has_job = False

    def start(self) -> None:
        """Creates all objects, the TFJob last, because its pods need the others from the start.

        Raises:
          HostError: the cluster refuses one of them.
        """
        for one in self._helpers:
            self._kubectl("create", "--filename=-", given=json.dumps(one))
        uid = self._kubectl(
            "create",
            "--filename=-",
            "--output=jsonpath={.metadata.uid}",
            given=json.dumps(self._manifest),
        )
        self._has_job = True
        # Whoever deletes the TFJob, Kubernetes then deletes these objects with it.
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": self._name, "uid": uid}
        patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
        for one in self._helpers:
            target = (one["kind"].lower(), one["metadata"]["name"])
            self._kubectl("patch", *target, "--type=merge", f"--patch={patch}")
        where = f"namespace {self._kubectl.namespace} of {self._kubectl.context}"
        self._loop.note(f"tfjob {self._name} in {where}")

    def close(self, run_id: str) -> None:
        """Deletes what is left in the cluster, and ends all streams."""
        selector = f"--selector={manifests.selector(self._name)}"
        kinds = "networkpolicies.networking.k8s.io,secrets"
        kinds += f",{_TFJOBS}" if self._has_job else ""
        try:
            self._kubectl("delete", kinds, selector, "--ignore-not-found", "--wait=false")
        except HostError as error:
            self._loop.note(f"{error}; to end what is left: clean --run {run_id}")
        for stream in self._watches.values():
            stream.close()
        self._logs.close()

    def handle(self, event: Event) -> None:
        """Handles an item of a watch or a log."""
        (stream, item), now = event, time.monotonic()
        kind = next((kind for kind, one in self._watches.items() if one is stream), None)
        if kind is None:
            taken = self._logs.take(stream, item)
            if taken is not None:
                self._loop.take_lines(taken[0].task, taken[0].node, [self._masked(taken[1])])
        elif item is None:
            self._watch_ended(kind, now)
        elif kind == _PODS:
            self._take_pod(item[0], item[1], now)
        elif item[0] == "DELETED":
            self._follower.job_gone(now)
        else:
            self._follower.saw_job(item[1], now)

    def stop(self, signum: int, count: int) -> None:
        """Ends the job in order at the first signal, and deletes its pods at once at later ones."""
        name = signal.Signals(signum).name
        if count == 1:
            self._loop.note(f"{name}: deleting the job; a second signal ends it immediately")
            self._follower.stop(f"stopped by {name}", 128 + signum, time.monotonic())
            return
        pods = f"--selector={manifests.pod_selector(self._name)}"
        words = ("delete", "pods", pods, "--grace-period=1", "--wait=false", "--ignore-not-found")
        self._kubectl(*words)

    def tick(self, now: float) -> None:
        """Opens watches, reads events, and deletes the TFJob when the follower says so."""
        self._watch(now)
        self._look_at_events(now)
        self._loop.note(*self._follower.tick(now))
        if self._follower.wants_deletion(now):
            self._kubectl("delete", _TFJOBS, self._name, "--ignore-not-found", "--wait=false")
            self._follower.deleted(time.monotonic())

    def has_lines_to_come(self) -> bool:
        """Returns whether the log of a pod that has ended was not read to its end."""
        self._logs.keep_reading(time.monotonic())
        return not self._logs.are_complete

    def _watch(self, now: float) -> None:
        """Opens missing watches and logs; API servers and networks end each of them at times."""
        for kind, due in self._due.items():
            if kind not in self._watches and now >= due:
                which = self._name
                if kind == _PODS:
                    which = f"--selector={manifests.pod_selector(self._name)}"
                words = ("get", kind, which, "--watch", "--output-watch-events", "--output=json")
                self._watches[kind] = Stream(self._kubectl.command(*words), watch_events, self._put)
        self._logs.keep_reading(now)

    def _put(self, stream: Stream, item: Any) -> None:
        self._loop.events.put((stream, item))

    def _watch_ended(self, kind: str, now: float) -> None:
        stream = self._watches.pop(kind)
        errors = stream.last_words()
        stream.close()
        self._due[kind] = now + _AGAIN_SECS
        if kind == _TFJOBS and "NotFound" in errors:
            self._follower.job_gone(now)
        elif errors.strip() and not self._follower.verdict:
            self._loop.note(f"{self._kubectl.explain(errors)}; the job goes on, trying again")

    def _take_pod(self, event: str, found: dict[str, Any], now: float) -> None:
        pod = read_pod(found)
        if pod is None:
            return
        if event == "DELETED":
            self._follower.pod_gone(pod.task, pod.uid)
            self._logs.follow(replace(pod, state="ended"))
            return
        self._loop.note(*self._follower.saw_pod(pod, now))
        if pod.state == "running" or pod.code is not None:
            self._logs.follow(pod)
            self._logs.keep_reading(now)

    def _masked(self, line: str) -> str:
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line

    def _look_at_events(self, now: float) -> None:
        """Reads from events why pods are not created or started, which their status may not say."""
        states = self._follower.states.values()
        waiting = [state for state in states if state.status in ("waiting", "starting")]
        if now < self._next_events or not waiting or self._follower.verdict:
            return
        self._next_events = now + _EVENTS_SECS
        found = json.loads(
            self._kubectl("get", "events", "--field-selector=type=Warning", "--output=json")
        )
        for event in sorted(found["items"], key=lambda one: one.get("lastTimestamp") or ""):
            about = event["involvedObject"]["name"]
            words = " ".join(f"{event.get('reason')}: {event.get('message')}".split())
            for state in waiting:
                task = state.task
                pod = f"{self._name}-{task.task_type}-{task.index}"
                if about == pod or (about == self._name and state.status == "waiting"):
                    self._loop.note(*self._follower.warned(task.name, words))
