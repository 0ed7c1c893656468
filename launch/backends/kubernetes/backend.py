"""The kubernetes backend: a Job for each task, which kubectl creates, follows and deletes.

The cluster runs the job, not this process: if the launcher is killed, the job goes on. Its Service
keeps what another launcher needs to follow it, so that `attach`, on any machine, takes its place.
What fails before the job exists ends the run, and so does a refusal of the first poll; later, every
call of kubectl that fails is tried again.
"""

import math
import queue
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Optional

from launch.agent.task_process import Mask
from launch.backends.base import Backend
from launch.backends.kubernetes import manifests
from launch.backends.kubernetes.kubectl import ForbiddenError, JobObjects, Kubectl, connect
from launch.backends.kubernetes.logs import Event, PodLogs
from launch.backends.kubernetes.pod_watch import PodWatch
from launch.backends.kubernetes.settings import KubernetesSettings
from launch.backends.kubernetes.state import Pod
from launch.cluster import show
from launch.cluster.model import Host, Limits
from launch.cluster.tasks import Devices, Job, Task, with_token
from launch.connect.host_check import Checked
from launch.connect.tools import await_end
from launch.errors import HostError
from launch.record.result import ExitReason, Result
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.supervise.run import allowed_variables
from launch.supervise.run_loop import RunLoop, stop_signals
from launch.supervise.supervisor import Action, Note, Signal, Start

_INSTEAD = (
    "# Where Kubeflow's training operator runs, this TFJob can take the place of the Service and "
    "the\n# Jobs: sed -n 's/^#T //p'. `launch` does not follow it."
)
_STAMP = "%Y-%m-%dT%H:%M:%SZ"
_BACKLOG = 2000  # lines
_POLL_SECS = 2.0
_SOON_SECS = 0.3  # between two polls where a log has ended
_AGAIN_SECS = 5.0  # between two tries to delete the job, or to restart a task
_NO_POD_SECS = 15.0  # until a Job without a pod is news, and between two looks at why
_LOGS_SECS = 5.0  # for the logs of pods that have ended, before the job is deleted with them
_GONE_SECS = 30.0  # until a stopped job's pods, which have ended, are gone


class Kubernetes(Backend):
    """Runs each task as a Job of Kubernetes itself."""

    name = "kubernetes"
    chooses_hosts = True
    tasks_share_hosts = False
    has_image = True
    settings = KubernetesSettings

    def plan(self, job: Job) -> list[show.Document]:
        """Returns the manifests for `kubectl apply -f -`, without the values of variables.

        Comments after them hold a TFJob, for clusters where Kubeflow's operator is to run the job.
        """
        text = manifests.as_yaml(manifests.planned(job))
        if names := show.variables(job):
            secret = manifests.secret_name(manifests.name_of(job))
            text = (
                f"# before it, from a file with NAME=VALUE lines for {', '.join(names)}:\n"
                f"#   kubectl create secret generic {secret} --from-env-file=FILE\n{text}"
            )
        tfjob = manifests.as_yaml([manifests.tfjob(job, manifests.name_of(job))])
        comments = [f"#T {line}" for line in tfjob.splitlines()]
        return [show.Document("kubectl apply -f -", "\n".join([text, _INSTEAD, *comments]))]

    def addressed(self, job: Job) -> Job:
        """Returns the job with the names of pods in TF_CONFIG, as in the manifests."""
        return manifests.addressed(job, manifests.name_of(job))

    def plan_text(self, job: Job) -> str:
        """Returns the manifests, which have each task's TF_CONFIG."""
        return f"# {show.counts(job)} (kubernetes)\n{show.as_documents(self.plan(job))}"

    def output_folder(self, job: Job) -> Optional[str]:
        """Returns None: training writes to a volume."""
        return None

    def check(self, job: Job) -> Checked:
        """Returns what the cluster says of the user's rights, the claims and all objects."""
        settings = job.cluster.section(KubernetesSettings)
        kubectl = connect(settings)
        where = f"namespace {kubectl.namespace} of {kubectl.context}"
        if missing := kubectl.missing_rights():
            lacks = f"you may not {', '.join(missing)} in {where}"
            raise HostError(f"{lacks}; docs/launch.md has the Role to ask for")
        claims = [name for name in (settings.data, settings.output) if not {"/", ":"} & {*name}]
        try:
            kubectl("get", "persistentvolumeclaims", *claims) if claims else ""
            found = f"claims: {', '.join(claims)}"
        except ForbiddenError:
            found = f"claims {', '.join(claims)}: you may not get them, so they were not looked at"
        allowed = allowed_variables(job.cluster.pass_environment)
        objects = [*manifests.planned(job), manifests.secret(job, manifests.name_of(job), allowed)]
        taken = kubectl.create(objects, "--dry-run=server", "--output=name").split()
        return Checked(said=[f"{where}: it would take all {len(taken)} objects", found])

    def run(self, job: Job, folder: RunFolder, display: Display) -> Result:
        """Creates the job, follows it to its end, and deletes it.

        After SIGHUP, as from a terminal that was closed, the job goes on without its launcher.
        """
        job, limits = with_token(job), job.cluster.limits
        allowed = allowed_variables(job.cluster.pass_environment)
        name = manifests.name_of(job, folder.run_id)
        kubectl = connect(job.cluster.section(KubernetesSettings))
        jobs = manifests.task_jobs(job, name)
        policy, service = (manifests.made(kind, job, name) for kind in manifests.SHARED)
        owned = [policy, manifests.secret(job, name, allowed), *jobs.values()]
        place = {"context": kubectl.context, "namespace": kubectl.namespace, "name": name}
        rules = {"limits": vars(limits), "restarts": job.cluster.restarts, "passed": [*allowed]}
        folder.add(kubernetes={**place, **rules})
        record = folder.record()
        tasks = [{"task": task["task"]} for task in record["tasks"]]  # a Service has 256 KiB
        short = {**record, "hosts": [], "arguments": [], "tasks": tasks}
        objects = JobObjects(kubectl, name)
        create = partial(objects.create, service, owned, short)
        return _supervise(objects, folder, display, allowed, jobs, create)

    def rejoin(self, folder: RunFolder, display: Display) -> Result:
        """Follows a job that was left, to its end; see `Backend.rejoin`."""
        record = folder.record()
        objects, rules = self.job_of(record), record.get("kubernetes", {})
        hint = f"to end it: stop --run {folder.run_id}"
        if objects is None or "limits" not in rules:
            lacks = "lacks its limits, as one of an earlier version"
            raise HostError(f"run {folder.run_id} {lacks}; {hint}")
        allowed = allowed_variables(rules["passed"])
        jobs = objects.rejoin()
        if missing := [task["task"] for task in record["tasks"] if task["task"] not in jobs]:
            lacks = f"has no Job for {', '.join(missing)} any more, so it cannot go on"
            raise HostError(f"{objects.title} {lacks}; {hint}")
        return _supervise(objects, folder, display, allowed, jobs, lambda: None)

    def known(self, run_id: str) -> Optional[Record]:
        """Returns the record of a run in the namespace of the current context; None if none."""
        kubectl = connect(KubernetesSettings())
        record = JobObjects(kubectl, "").record(run_id)
        if record is not None:  # another machine may call the cluster otherwise
            record["kubernetes"] |= {"context": kubectl.context, "namespace": kubectl.namespace}
        return record

    def job_of(self, record: Record) -> Optional[JobObjects]:
        """Returns the objects of a run; None if it ended before it reached the cluster."""
        place = record.get("kubernetes")
        if place is None:
            return None
        return JobObjects(Kubectl(place["context"], place["namespace"]), place["name"])


def _supervise(
    objects: JobObjects,
    folder: RunFolder,
    display: Display,
    allowed: Mapping[str, str],
    jobs: Mapping[str, manifests.Manifest],
    create: Callable[[], None],
) -> Result:
    """Creates a job by `create`, follows it to its end, and deletes it."""
    record, status = folder.record(), folder.status()
    rules, steps = record["kubernetes"], {row["task"]: row["step"] for row in status["tasks"]}
    host, limits = Host("-", "", (), workdir="/data"), Limits(**rules["limits"])
    names = [task["task"].partition("/") for task in record["tasks"]]
    tasks = [Task(kind, int(index), host, None, Devices(), "", ()) for kind, _, index in names]
    with stop_signals() as signals:
        now = time.monotonic()
        watch = PodWatch(tasks, limits, rules["restarts"], now)
        watch.supervisor.heard(now, stepped=any(steps.values()))
        for name, manifest in jobs.items():
            watch.supervisor.resumed(name, manifests.restarts_of(manifest), steps.get(name, ""))
        events: queue.Queue[Event] = queue.Queue(_BACKLOG)
        loop = RunLoop(watch.supervisor, folder, display, events, signals)
        since = time.strftime(_STAMP, time.gmtime(status["time"])) if "time" in status else ""
        driver = JobDriver(objects, watch, loop, list(allowed.values()), jobs, since)
        is_left = False
        try:
            create()
            return loop.supervise(driver)
        except Detached:
            is_left = True
            words = f"the launcher leaves; {objects.title} goes on"
            ways = f"to see or end it: attach or stop --run {folder.run_id}"
            return Result(128 + signal.SIGHUP, f"{words}; {ways}", cause=ExitReason.USER)
        finally:
            driver.end(folder.run_id, is_left=is_left)


class Detached(Exception):
    """The launcher does not follow the job any more, which goes on."""


class JobDriver:
    """Tells the watch what polls show, and carries out what is decided.

    Args:
      objects: the job's objects in the cluster.
      watch: the object that decides how the job ends.
      loop: the run loop, which takes the tasks' lines and notes for the user.
      secrets: values to mask in the tasks' lines.
      jobs: task's name -> the manifest of its Job, to restart it.
      since: the time before which lines are not read; "" for all.
    """

    def __init__(
        self,
        objects: JobObjects,
        watch: PodWatch,
        loop: RunLoop,
        secrets: Sequence[str],
        jobs: Mapping[str, manifests.Manifest],
        since: str = "",
    ) -> None:
        self._objects, self._jobs = objects, jobs
        self._watch, self._loop, self._mask = watch, loop, Mask(secrets)
        # When the queue is full, the threads that read logs wait.
        self._logs = PodLogs(objects.kubectl, loop.events.put, self._take_line, since)
        self._has_polled = self._is_stopped = self._wants_deletion = False
        self._polled = -math.inf
        self._told: set[str] = set()  # what the user was told once
        self._to_start: list[str] = []
        self._held: set[str] = set()  # tasks to start whose Job is deleted
        self._logs_due = 0.0  # until when logs are read before the deletion
        self._again = 0.0  # when to call kubectl again after an error
        self._refusals_due = math.inf  # when to ask why a Job has no pod

    def start(self) -> None:
        """Says where the job is."""
        kubectl, title = self._objects.kubectl, self._objects.title
        self._loop.note(f"{title} in namespace {kubectl.namespace} of {kubectl.context}")

    def end(self, run_id: str, *, is_left: bool) -> None:
        """Ends all logs; deletes the job unless it is left, and tells the user if that fails.

        After a stop by the user, it returns once Kubernetes says that all is gone.
        """
        self._logs.close()
        try:
            if not is_left:  # also if an answer to `create` was lost
                self._objects.delete()
                if self._is_stopped:
                    await_end(lambda: ", ".join(self._objects.left()), _GONE_SECS, _SOON_SECS)
        except HostError as error:
            if self._objects.owner:
                self._loop.note(f"{error}; to end what is left: clean --run {run_id}")

    def handle(self, event: Event) -> None:
        """Handles a line of a log, or its end."""
        event()

    def stop(self, signum: int) -> None:
        """Ends the job in order at the first signal, and deletes its pods at once at the second.

        Raises:
          Detached: the signal is SIGHUP, and the job is not ending: it goes on.
        """
        name = signal.Signals(signum).name
        if signum == signal.SIGHUP:
            if self._watch.supervisor.expected is None:
                raise Detached
            self._loop.note(f"{name}: the job is ending already")
            return
        next_one = "ending its pods at once" if self._is_stopped else "a second one ends it at once"
        self._loop.note(f"{name}: deleting the job; {next_one}")
        self._is_stopped = self._wants_deletion = True
        self._carry_out(self._watch.supervisor.stop(signum, time.monotonic()))

    def tick(self, now: float) -> None:
        """Does what is due: polls, restarts tasks, deletes the job once its logs are read."""
        self._poll(now)
        self._carry_out(self._watch.tick(now))
        if self._wants_deletion:
            self._to_start.clear()
            self._logs_due = self._logs_due or now + _LOGS_SECS
        if now < self._again:
            return
        try:
            for task in [*self._to_start]:
                if task not in self._watch.held:
                    self._objects.make_anew(self._jobs[task], self._watch.states[task].restarts)
                    self._to_start.remove(task)
                    self._held.discard(task)
                elif task not in self._held:
                    self._objects.remove(self._jobs[task])  # with what Kubernetes has made anew
                    self._held.add(task)
                    self._loop.note(f"{task} starts again once its earlier pod has ended")
            are_read = self._is_stopped or self._logs.are_complete or now >= self._logs_due
            if self._wants_deletion and are_read:
                self._watch.is_deleted = True  # it may reach the cluster though kubectl fails
                # The Service goes last: while the tasks save, they find each other by its names.
                self._objects.delete("jobs.batch")
                self._again = math.inf
        except HostError as error:
            self._again = now + _AGAIN_SECS
            what = ", ".join(self._to_start) or f"delete {self._objects.name}"
            self._tell_once(f"{error}; trying again: {what}")

    def has_lines_to_come(self) -> bool:
        """Returns whether a pod has not ended, or the log of one is not read to its end."""
        self._poll(time.monotonic())
        return bool(self._watch.alive) or not self._logs.are_complete

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Note):
                self._loop.note(action.text)
            elif isinstance(action, Start):
                self._to_start.append(action.task)
            else:
                self._wants_deletion = True
        if any(isinstance(act, Signal) and act.signum == signal.SIGKILL for act in actions):
            try:
                self._objects.delete("pods", "--grace-period=1")
            except HostError as error:
                self._loop.note(f"{error}; the pods end within their time")

    def _tell_once(self, words: str, of: str = "") -> None:
        if (of or words) not in self._told:
            self._told.add(of or words)
            self._loop.note(words)

    def _tell_refusals(self, now: float) -> None:
        """Tells why Jobs have no pods, if they have had none for some time."""
        is_due = now >= self._refusals_due
        if is_due or not self._watch.without_pod:
            self._refusals_due = math.inf
        self._refusals_due = min(self._refusals_due, now + _NO_POD_SECS)
        if is_due and self._watch.without_pod:
            refusals, tasks = self._objects.refusals(), dict[str, list[str]]()
            for task in self._watch.without_pod:
                if why := refusals.get(manifests.job_name(self._objects.name, task)):
                    tasks.setdefault(why, []).append(task)
            for why, names in tasks.items():
                self._tell_once(f"no pod can be created for {', '.join(names)}: {why}", of=why)

    def _poll(self, now: float) -> None:
        """Asks for the state of the job, if that is due."""
        # Where a log has ended, its container may have.
        if now < self._polled + (_SOON_SECS if self._logs.one_ended else _POLL_SECS):
            return
        self._polled, self._logs.one_ended = now, False
        try:
            found = self._objects.poll()
        except HostError as error:
            if isinstance(error, ForbiddenError) and not self._has_polled:
                raise
            if self._watch.supervisor.expected is None:
                self._tell_once(f"{error}; the job goes on, trying again")
            return
        self._has_polled = True
        # A `stop` elsewhere deletes all Jobs, and the Service last.
        found = replace(found, is_deleted=found.is_deleted or not (found.jobs or self._to_start))
        self._logs.read(pod for pod in found.pods if pod.task in self._watch.states)
        self._carry_out(self._watch.saw(found, now))
        self._watch.is_blind = self._logs.refusal is not None
        if self._logs.refusal is not None:
            self._tell_once(f"{self._logs.refusal}; the job goes on, and its lines are not shown")
        try:
            self._tell_refusals(now)
        except HostError as error:
            self._tell_once(f"{error}; so it is not known why no pods are created")

    def _take_line(self, pod: Pod, line: str) -> None:
        self._loop.take_lines(pod.task, pod.node, [self._mask.text(line)])
