"""One run of a TFJob: creates it, follows it with kubectl's watches and logs, and deletes it."""

import json
import queue
import signal
import time
from dataclasses import replace
from types import FrameType
from typing import Any, Optional

from launch.agent.log_file import LogFile
from launch.backends.kubernetes import manifests
from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.kubectl import Kubectl, Stream, connect, watch_events
from launch.backends.kubernetes.logs import PodLogs
from launch.backends.kubernetes.pods import read_pod
from launch.backends.kubernetes.settings import settings_of
from launch.cluster.tasks import Job
from launch.errors import HostError
from launch.record.outcome import Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.board import Board
from launch.supervise.run import handling, passed_values

_LOOK_SECS = 0.25
_STATUS_SECS = 1.0
_AGAIN_SECS = 1.0  # between the end of a watch and the next one
_EVENTS_SECS = 10.0  # between two looks at why pods wait
_LOGS_SECS = 5.0  # for the rest of the logs, once all pods have ended
_BACKLOG = 10_000  # lines; a stream that is ahead of that waits
_SHOWN = 4096  # characters of a line that are shown
_TFJOBS, _PODS = "tfjobs.kubeflow.org", "pods"


def run(job: Job, folder: RunFolder, display: Display) -> Outcome:
    """Creates the job, follows it to its end, and deletes it.

    Raises:
      LaunchError: a variable to pass is not set here.
      HostError: the cluster does not take the job, or cannot be reached any more.
    """
    settings = settings_of(job.cluster)
    passed = passed_values(job.cluster.passed)
    manifest = manifests.tfjob(job, f"{settings.name}-{folder.run_id}")
    kubectl = connect(settings)
    name = manifest["metadata"]["name"]
    place = {"context": kubectl.context, "namespace": kubectl.namespace, "name": name}
    folder.add(kubernetes=place)
    signals: list[int] = []

    def note(signum: int, _: Optional[FrameType]) -> None:
        signals.append(signum)

    with handling(note):
        one = _Run(job, name, kubectl, folder, display)
        try:
            one.create(manifest, {**dict(job.cluster.environment), **passed})
            outcome = one.follow(signals, [value for value in passed.values() if len(value) >= 6])
        finally:
            one.close()
        return outcome


class _Run:
    def __init__(
        self, job: Job, name: str, kubectl: Kubectl, folder: RunFolder, display: Display
    ) -> None:
        self._job, self._name, self._kubectl = job, name, kubectl
        self._folder, self._display = folder, display
        cluster, now = job.cluster, time.monotonic()
        self._follower = Follower(job.tasks, cluster.limits, cluster.restarts, now)
        self._board = Board(self._follower.states)
        self._events: queue.Queue[tuple[Stream, Any]] = queue.Queue(_BACKLOG)
        self._logs = PodLogs(kubectl, self._put)
        self._files: dict[str, LogFile] = {}
        self._watches: dict[str, Stream] = {}
        self._due = {_PODS: 0.0, _TFJOBS: 0.0}
        self._next_events = now + _EVENTS_SECS
        self._secrets: list[str] = []
        self._has_job = False

    def create(self, manifest: dict[str, Any], values: dict[str, str]) -> None:
        """Creates all objects; policy and variables first: a pod needs both from its first moment.

        Raises:
          HostError: the cluster refuses one of them.
        """
        helpers = [manifests.network_policy(self._job, self._name)]
        if values:
            helpers.append(manifests.secret(self._job, self._name, values))
        for one in helpers:
            self._kubectl("create", "--filename=-", given=json.dumps(one))
        uid = self._kubectl(
            "create",
            "--filename=-",
            "--output=jsonpath={.metadata.uid}",
            given=json.dumps(manifest),
        )
        self._has_job = True
        # From now on they go with the job, whoever deletes it.
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": self._name, "uid": uid}
        patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
        for one in helpers:
            target = (one["kind"].lower(), one["metadata"]["name"])
            self._kubectl("patch", *target, "--type=merge", f"--patch={patch}")
        where = f"namespace {self._kubectl.namespace} of {self._kubectl.context}"
        self._display.note(f"tfjob {self._name} in {where}")

    def follow(self, signals: list[int], secrets: list[str]) -> Outcome:
        """Follows the job to its end.

        Args:
          signals: those that have come.
          secrets: values that no log may hold.

        Raises:
          HostError: the job could not be deleted.
        """
        self._secrets = secrets
        follower, heeded, next_status = self._follower, 0, 0.0
        while follower.outcome is None:
            now = time.monotonic()
            self._watch(now)
            self._hear(_LOOK_SECS)
            for signum in signals[heeded:]:
                heeded += 1
                self._heed(signum, heeded)
            now = time.monotonic()
            self._look_at_events(now)
            self._say(follower.tick(now))
            if follower.wants_deletion:
                self._delete_job()
            if now >= next_status:
                next_status = now + _STATUS_SECS
                self._show(None)
        deadline = time.monotonic() + _LOGS_SECS
        while not self._logs.are_complete and time.monotonic() < deadline:
            self._logs.keep_reading(time.monotonic())
            self._hear(0.05)
        self._show(follower.outcome)
        return replace(follower.outcome, details=self._details(follower.outcome.task))

    def close(self) -> None:
        """Removes what is left in the cluster, and ends all streams."""
        selector = f"--selector={manifests.selector(self._name)}"
        kinds = "networkpolicies.networking.k8s.io,secrets"
        kinds += f",{_TFJOBS}" if self._has_job else ""
        try:
            self._kubectl("delete", kinds, selector, "--ignore-not-found", "--wait=false")
        except HostError as error:
            self._display.note(f"{error}; to end what is left: clean --run {self._folder.run_id}")
        for stream in self._watches.values():
            stream.close()
        self._logs.close()
        for file in self._files.values():
            file.close()

    def _watch(self, now: float) -> None:
        """Opens what is missing: an API server ends each watch now and then, as networks do."""
        for kind, due in self._due.items():
            if kind not in self._watches and now >= due:
                which = self._name
                if kind == _PODS:
                    which = f"--selector={manifests.pod_selector(self._name)}"
                words = ("get", kind, which, "--watch", "--output-watch-events", "--output=json")
                self._watches[kind] = Stream(self._kubectl.command(*words), watch_events, self._put)
        self._logs.keep_reading(now)

    def _put(self, stream: Stream, item: Any) -> None:
        self._events.put((stream, item))

    def _hear(self, secs: float) -> None:
        """Waits a moment for events, and takes those that have come."""
        try:
            self._handle(*self._events.get(timeout=secs))
            for _ in range(1000):
                self._handle(*self._events.get_nowait())
        except queue.Empty:
            return

    def _handle(self, stream: Stream, item: Any) -> None:
        now = time.monotonic()
        kind = next((kind for kind, one in self._watches.items() if one is stream), None)
        if kind is None:
            taken = self._logs.take(stream, item)
            if taken is not None:
                self._take_line(taken[0].task, taken[0].node, taken[1])
        elif item is None:
            self._watch_ended(kind, now)
        elif kind == _PODS:
            self._take_pod(item[0], item[1], now)
        elif item[0] == "DELETED":
            self._follower.job_gone(now)
        else:
            self._follower.saw_job(item[1], now)

    def _watch_ended(self, kind: str, now: float) -> None:
        stream = self._watches.pop(kind)
        errors = stream.last_words()
        stream.close()
        self._due[kind] = now + _AGAIN_SECS
        if kind == _TFJOBS and "NotFound" in errors:
            self._follower.job_gone(now)
        elif errors.strip() and not self._follower.verdict:
            self._display.note(f"{self._kubectl.explain(errors)}; the job goes on, trying again")

    def _take_pod(self, event: str, found: dict[str, Any], now: float) -> None:
        pod = read_pod(found)
        if pod is None:
            return
        if event == "DELETED":
            self._follower.pod_gone(pod.task, pod.uid)
            self._logs.follow(replace(pod, state="ended"))
            return
        self._say(self._follower.saw_pod(pod, now))
        if pod.state == "running" or pod.code is not None:
            self._logs.follow(pod)
            self._logs.keep_reading(now)

    def _take_line(self, task: str, node: str, line: str) -> None:
        for secret in self._secrets:
            line = line.replace(secret, "***")
        if task not in self._files:
            self._files[task] = LogFile(str(self._folder.log_path(task)))
        self._files[task].write(f"{line}\n".encode())
        stepped = self._board.take(task, [line[:_SHOWN]])
        self._follower.heard(time.monotonic(), stepped=stepped)
        self._display.task_line(task, node, line[:_SHOWN])

    def _heed(self, signum: int, count: int) -> None:
        name = signal.Signals(signum).name
        if count == 1:
            self._display.note(f"{name}: deleting the job; once more ends it at once")
            self._follower.stop(f"stopped by {name}", 128 + signum, time.monotonic())
            return
        pods = f"--selector={manifests.pod_selector(self._name)}"
        words = ("delete", "pods", pods, "--grace-period=1", "--wait=false", "--ignore-not-found")
        self._kubectl(*words)

    def _delete_job(self) -> None:
        self._kubectl("delete", _TFJOBS, self._name, "--ignore-not-found", "--wait=false")
        self._follower.deleted(time.monotonic())

    def _look_at_events(self, now: float) -> None:
        """Why a pod does not come or start stands in the events, where its status says nothing."""
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
                    self._say(self._follower.warned(task.name, words))

    def _say(self, notes: list[str]) -> None:
        for note in notes:
            self._display.note(note)

    def _show(self, outcome: Optional[Outcome]) -> None:
        self._display.table(self._board.rows())
        self._folder.write_status(self._board.status(outcome))

    def _details(self, task: Optional[str]) -> tuple[str, ...]:
        """A failed task's last lines, and where the rest is."""
        if task is None:
            return ()
        lines = tuple(f"  | {line}" for line in self._board.last_lines(task))
        log = self._folder.log_path(task)
        return (*lines, f"  log: {log}") if log.exists() else lines
