"""Runs a job: creates it, polls it and follows its logs to its end, and deletes it.

What fails before the job exists ends the run. Later, every call of kubectl that fails is tried
again while the job lasts, because the job goes on in the cluster.
"""

import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Optional, Union

from launch.agent.logs import Mask
from launch.backends.kubernetes import manifests, objects
from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.kubectl import Kubectl, connect
from launch.backends.kubernetes.logs import PodLogs
from launch.backends.kubernetes.objects import Form, Objects
from launch.backends.kubernetes.pod_template import Manifest
from launch.backends.kubernetes.settings import settings_of
from launch.backends.kubernetes.state import Pod, Poll, Warned
from launch.cluster.tasks import Job, with_token
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.journal import run_ends
from launch.supervise.run import passed_values
from launch.supervise.run_loop import RunLoop, stop_signals

_BACKLOG = 2000  # lines and polls; when the queue is full, those who write it wait
_POLL_SECS = 2.0
_SOON_SECS = 0.5  # between polls while something starts or ends
_LOOK_SECS = 0.1
_WARNINGS_SECS = 5.0  # how long tasks wait before events are read, which say why
_DELETE_SECS = 5.0  # between two tries to delete the job
_LOGS_SECS = 5.0  # for the logs of pods that have ended, before the job is deleted with them

Event = Callable[[], None]  # called in the main thread


def run(job: Job, folder: RunFolder, display: Display) -> Outcome:
    """Creates the job, follows it to its end, and deletes it.

    After SIGHUP, as from a terminal that was closed, the job goes on without its launcher; so it
    does after an error of the launcher itself.

    Raises:
      LaunchError: the description of the cluster names hosts, or a variable to pass to the tasks is
        not set in this process.
      HostError: the cluster refuses the job, or its user may not follow it.
    """
    job, settings = with_token(job), settings_of(job.cluster)
    passed = passed_values(job.cluster.passed)
    name = f"{settings.name}-{folder.run_id}"
    jobs = manifests.task_jobs(job, name)
    kubectl = connect(settings)
    form = objects.choose_form(kubectl, settings.operator)
    place = {"context": kubectl.context, "namespace": kubectl.namespace, "name": name}
    folder.add(kubernetes={**place, "kind": form.kind})
    is_tfjob = form is objects.TFJOB
    owner = manifests.tfjob(job, name) if is_tfjob else manifests.service(job, name)
    with stop_signals() as signals:
        limits, restarts = job.cluster.limits, job.cluster.restarts
        follower = Follower(job.tasks, limits, restarts, time.monotonic(), is_tfjob=is_tfjob)
        events: queue.Queue[Event] = queue.Queue(_BACKLOG)
        loop = RunLoop(follower, folder, display, events, signals)
        values = {**dict(job.cluster.environment), **passed}
        owned = [manifests.network_policy(job, name), manifests.secret(job, name, values)]
        owned += [] if is_tfjob else jobs.values()
        created = Objects(kubectl, form, owner, owned, loop.note)
        runner = Runner(kubectl, created, follower, loop, list(passed.values()), jobs)
        is_left = False
        try:
            outcome = loop.run(runner)
            run_ends(folder, outcome)
            return outcome
        except Left:
            is_left = True
            words = f"not followed any more; {form.noun} {name} goes on; to end it: clean --run "
            return Outcome(128 + signal.SIGHUP, f"{words}{folder.run_id}", cause=Cause.USER)
        except Exception as error:
            if created.exists and not isinstance(error, LaunchError):
                is_left = True
                loop.note(f"{form.noun} {name} goes on; to end it: clean --run {folder.run_id}")
            raise
        finally:
            runner.close()
            if signals and not created.exists:
                loop.note("deleting what kubectl may have created")
            if not is_left:
                created.remove(folder.run_id)


class Left(Exception):
    """The launcher does not follow the job any more, which goes on."""


class Runner:
    """Tells the follower what polls show, and deletes the job when the follower says so.

    Args:
      kubectl: runs kubectl for the job's cluster and namespace.
      created: the objects in the cluster.
      follower: the object that decides how the job ends.
      loop: the run loop, which takes the tasks' lines and notes for the user.
      secrets: values to mask in the tasks' lines.
      jobs: task's name -> the manifest of its Job, to restart it.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        created: Objects,
        follower: Follower,
        loop: RunLoop[Event],
        secrets: Sequence[str],
        jobs: Mapping[str, Manifest],
    ) -> None:
        self._jobs = jobs
        self._objects, self._follower, self._loop = created, follower, loop
        self._mask = Mask(secrets)
        self._poller = Poller(kubectl, created.form, created.name, self._put)
        self._logs = PodLogs(kubectl, self._put, self._take_line)
        self._is_closed = self._has_polled = False
        self._outage = ""  # the error of the last poll
        self._told: set[str] = set()  # what the user was told once
        self._delete_due = 0.0
        self._logs_due: Optional[float] = None  # until when logs are read before the deletion
        self._stops = 0

    def start(self) -> None:
        """Creates all objects; HostError if the cluster refuses one of them."""
        self._objects.create()
        self._poller.start(self._take_poll, self._take_warnings)

    def close(self) -> None:
        """Ends the poll and all logs."""
        self._is_closed = True
        self._poller.close()
        self._logs.close()

    def handle(self, event: Event) -> None:
        """Handles a poll, or a line of a log."""
        event()

    def stop(self, signum: int, count: int) -> None:
        """Ends the job in order at the first signal, and deletes its pods at once at later ones.

        Raises:
          Left: the signal is SIGHUP, and the job is not ending: it goes on.
        """
        name = signal.Signals(signum).name
        if signum == signal.SIGHUP:
            if self._follower.verdict is None:
                raise Left
            self._loop.note(f"{name}: the job is ending already")
            return
        self._stops += 1
        if self._stops == 1:
            self._loop.note(f"{name}: deleting the job; a second signal ends it immediately")
            self._follower.stop(f"stopped by {name}", 128 + signum, time.monotonic())
            return
        try:
            self._objects.delete_pods()
        except HostError as error:
            self._loop.note(f"{error}; a further signal tries again")

    def tick(self, now: float) -> None:
        """Decides what is due, and deletes the job when the follower says so."""
        self._loop.note(*self._follower.tick(now))
        for task in self._follower.due(now):
            self._restart(task, now)
        is_ending = self._follower.verdict is not None
        if now >= self._delete_due and self._follower.wants_deletion(now) and self._may_delete(now):
            self._delete_due = now + _DELETE_SECS
            self._delete()
        changes = is_ending or self._logs.are_ending or self._follower.is_starting
        self._poller.secs = _SOON_SECS if changes else _POLL_SECS
        self._poller.waiting = [] if is_ending else self._follower.waiting

    def has_lines_to_come(self) -> bool:
        """Returns whether a log has not been read to its end.

        It is that of a pod that has ended, or the lead's: the job may be shown as done before its
        pods are.
        """
        verdict = self._follower.verdict
        is_done = verdict is not None and verdict.exit_code == 0
        is_unseen = is_done and not self._logs.has_ended(self._follower.lead)
        return is_unseen or not self._logs.are_complete

    def _restart(self, task: str, now: float) -> None:
        try:
            self._objects.make_anew(self._jobs[task])
        except HostError as error:
            self._tell_once(f"{error}; trying again to restart {task}")
            self._follower.restarts_later(task, now)
        else:
            self._follower.restarted(task)

    def _put(self, event: Event) -> None:
        while not self._is_closed:
            try:
                self._loop.events.put(event, timeout=0.5)
                return
            except queue.Full:
                continue

    def _take_poll(self, found: Union[Poll, HostError], asked: float) -> None:
        if isinstance(found, HostError):
            words = str(found)
            if "(Forbidden)" in words and not self._has_polled:
                raise found
            if words != self._outage and self._follower.verdict is None:
                self._loop.note(f"{words}; the job goes on, trying again")
            self._outage = words
            return
        self._has_polled, self._outage = True, ""
        for words in found.unreadable:
            self._tell_once(f"{words}; it is left out")
        pods = []
        for pod in found.pods:
            if pod.task in self._follower.states:
                pods.append(pod)
            else:  # somebody has changed a TFJob's replicas
                self._tell_once(f"{pod.task}: this job has no such task; its pod is left out")
        self._logs.follow(pods)
        self._loop.note(*self._follower.saw(found, asked, time.monotonic()))

    def _take_warnings(self, found: Union[list[Warned], HostError]) -> None:
        if isinstance(found, HostError):
            self._tell_once(f"{found}; the job goes on, without the warnings of the cluster")
        else:
            self._loop.note(*self._follower.warned(found, self._objects.name))

    def _take_line(self, pod: Pod, line: str) -> None:
        self._loop.take_lines(pod.task, pod.node, [self._mask.text(line)])

    def _may_delete(self, now: float) -> bool:
        """Returns whether what ended pods have written is read, or has taken too long."""
        if self._logs_due is None:
            self._logs_due = now + _LOGS_SECS
        return self._stops > 0 or self._logs.are_complete or now >= self._logs_due

    def _delete(self) -> None:
        self._follower.asks_for_deletion()  # it may reach the cluster though kubectl fails
        try:
            self._objects.delete()
        except HostError as error:
            self._tell_once(
                f"{error}; trying again to delete {self._objects.form.noun} {self._objects.name}"
            )
            return
        self._follower.deleted(time.monotonic())

    def _tell_once(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self._loop.note(words)


class Poller:
    """Asks for the state of a job again and again, in a thread.

    Args:
      kubectl: says for which cluster and namespace.
      form: how the job is kept.
      name: the name of the job's objects.
      put: a function that the thread calls to have another one called in the main thread.

    Attributes:
      secs: the time between two polls.
      waiting: the names of the tasks of which warnings are wanted.
    """

    def __init__(
        self, kubectl: Kubectl, form: Form, name: str, put: Callable[[Event], None]
    ) -> None:
        self.secs, self.waiting = _SOON_SECS, list[str]()
        self._kubectl = Kubectl(kubectl.context, kubectl.namespace)
        self._form, self._name, self._put = form, name, put
        self._closed = threading.Event()

    def start(
        self,
        take: Callable[[Union[Poll, HostError], float], None],
        warn: Callable[[Union[list[Warned], HostError]], None],
    ) -> None:
        """Begins to poll.

        Args:
          take: takes each poll, or its error, and when it was asked for.
          warn: takes the warnings about tasks that wait, or an error.
        """
        threading.Thread(target=self._poll, args=(take, warn), daemon=True).start()

    def close(self) -> None:
        """Ends the thread, and kubectl."""
        self._closed.set()
        self._kubectl.close()

    def _poll(self, take: Callable[..., None], warn: Callable[..., None]) -> None:
        asked = time.monotonic()
        warnings_due = asked + _WARNINGS_SECS
        while not self._closed.wait(_LOOK_SECS):
            if time.monotonic() < asked + self.secs:  # which may change meanwhile
                continue
            asked = time.monotonic()
            found: Union[Poll, HostError]
            try:
                found = objects.poll(self._kubectl, self._form, self._name)
            except HostError as error:
                found = error
            self._put(partial(take, found, asked))
            if self.waiting and asked >= warnings_due:
                warnings_due = asked + _WARNINGS_SECS
                self._put(partial(warn, self._warnings()))

    def _warnings(self) -> Union[list[Warned], HostError]:
        pods = [manifests.job_name(self._name, task) for task in self.waiting]
        try:
            return objects.warnings(self._kubectl, self._name, pods)
        except HostError as error:
            return error
