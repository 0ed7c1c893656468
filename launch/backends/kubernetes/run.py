"""Runs a job: creates it, polls it and follows its logs to its end, and deletes it.

What fails before the job exists ends the run. Later, every call of kubectl that fails is tried
again while the job lasts, because the job goes on in the cluster.
"""

import contextlib
import queue
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from launch.agent.logs import Mask
from launch.backends.kubernetes import manifests
from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.kubectl import TFJOB, JobObjects, choose_form, connect
from launch.backends.kubernetes.logs import PodLogs
from launch.backends.kubernetes.manifests import Manifest
from launch.backends.kubernetes.settings import settings_of
from launch.backends.kubernetes.state import Pod
from launch.cluster.tasks import Job, with_token
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.run import passed_values
from launch.supervise.run_loop import RunLoop, interrupted_by_a_stop, stop_signals

_BACKLOG = 2000  # lines; when the queue is full, the threads that read logs wait
_POLL_SECS = 2.0
_SOON_SECS = 0.5  # between polls while a task or the job ends
_WARNINGS_SECS = 5.0  # between two looks at why tasks wait
_AGAIN_SECS = 5.0  # between two tries to delete the job, or to restart a task
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
    form = choose_form(kubectl, settings.operator)
    place = {"context": kubectl.context, "namespace": kubectl.namespace, "name": name}
    folder.add(kubernetes={**place, "kind": form.kind})
    values = {**dict(job.cluster.environment), **passed}
    owner, tasks = manifests.tfjob(job, name), list[Manifest]()
    if form is not TFJOB:
        owner, tasks = manifests.service(job, name), list(jobs.values())
    owned = [manifests.network_policy(job, name), manifests.secret(job, name, values), *tasks]
    objects = JobObjects(kubectl, form, name)
    with stop_signals() as signals:
        limits, restarts = job.cluster.limits, job.cluster.restarts
        is_tfjob, now = form is TFJOB, time.monotonic()
        follower = Follower(name, job.tasks, limits, restarts, now, is_tfjob=is_tfjob)
        events: queue.Queue[Event] = queue.Queue(_BACKLOG)
        loop = RunLoop(follower, folder, display, events, signals)
        create = partial(objects.create, owner, owned)
        runner = Runner(objects, create, follower, loop, list(passed.values()), jobs)
        goes_on = f"{form.noun} {name} goes on; to end it: clean --run {folder.run_id}"
        is_left = False
        try:
            return loop.run(runner)
        except Left:
            is_left = True
            words = f"not followed any more; {goes_on}"
            return Outcome(128 + signal.SIGHUP, words, cause=Cause.USER)
        except Exception as error:
            is_left = objects.exists and not isinstance(error, LaunchError)
            if is_left:
                loop.note(goes_on)
            raise
        finally:
            runner.close()
            if not is_left:
                runner.remove(folder.run_id)


class Left(Exception):
    """The launcher does not follow the job any more, which goes on."""


class Runner:
    """Tells the follower what polls show, and deletes the job when the follower says so.

    Args:
      objects: the job's objects in the cluster.
      create: creates them.
      follower: the object that decides how the job ends.
      loop: the run loop, which takes the tasks' lines and notes for the user.
      secrets: values to mask in the tasks' lines.
      jobs: task's name -> the manifest of its Job, to restart it.
    """

    def __init__(
        self,
        objects: JobObjects,
        create: Event,
        follower: Follower,
        loop: RunLoop[Event],
        secrets: Sequence[str],
        jobs: Mapping[str, Manifest],
    ) -> None:
        self._objects, self._create, self._jobs = objects, create, jobs
        self._follower, self._loop, self._mask = follower, loop, Mask(secrets)
        self._logs = PodLogs(objects.kubectl, self._put, self._take_line)
        self._is_closed = self._has_polled = self._is_deleted = False
        self._polled, self._warnings_due = 0.0, time.monotonic() + _WARNINGS_SECS
        self._outage = ""  # the error of the last poll
        self._told: set[str] = set()  # what the user was told once
        self._delete_due = 0.0
        self._logs_due = 0.0  # until when logs are read before the deletion
        self._stops = 0

    def start(self) -> None:
        """Creates all objects; HostError if the cluster refuses one of them."""
        with interrupted_by_a_stop():
            self._create()
        kubectl, noun = self._objects.kubectl, self._objects.form.noun.lower()
        where = f"in namespace {kubectl.namespace} of {kubectl.context}"
        self._loop.note(f"{noun} {self._objects.name} {where}")

    def close(self) -> None:
        """Ends all logs."""
        self._is_closed = True
        self._logs.close()

    def remove(self, run_id: str) -> None:
        """Deletes what is left of the job; tells the user if that fails."""
        if not self._objects.exists:  # but an answer to `create` may have been lost
            self._loop.note("deleting what kubectl may have created")
        try:
            self._objects.delete()
        except HostError as error:
            if self._objects.exists:
                self._loop.note(f"{error}; to end what is left: clean --run {run_id}")

    def handle(self, event: Event) -> None:
        """Handles a line of a log, or its end."""
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
            self._objects.delete_pods("--grace-period=1")
        except HostError as error:
            self._loop.note(f"{error}; a further signal tries again")

    def tick(self, now: float) -> None:
        """Decides what is due, and deletes the job when the follower says so."""
        self._poll_if_due(now)
        self._loop.note(*self._follower.tick(now))
        for task in self._follower.due(now):
            self._restart(task, now)
        if self._is_deleted or now < self._delete_due or not self._follower.wants_deletion(now):
            return
        self._logs_due = self._logs_due or now + _LOGS_SECS
        if self._stops or self._logs.are_complete or now >= self._logs_due:
            self._delete_due = now + _AGAIN_SECS
            self._delete(now)

    def has_lines_to_come(self) -> bool:
        """Returns whether the log of a pod that has ended has not been read to its end."""
        if not self._logs.are_complete:  # only a poll opens one again, or shows that it is gone
            self._poll_if_due(time.monotonic())
        return not self._logs.are_complete

    def _restart(self, task: str, now: float) -> None:
        try:
            self._objects.make_anew(self._jobs[task])
            self._follower.restarted(task)
        except HostError as error:
            self._follower.states[task].due = now + _AGAIN_SECS
            self._tell_once(f"{error}; trying again to restart {task}")

    def _delete(self, now: float) -> None:
        self._follower.deletes(now)  # it may reach the cluster though kubectl fails
        try:
            self._objects.delete()
            self._is_deleted = True
        except HostError as error:
            job = f"{self._objects.form.noun} {self._objects.name}"
            self._tell_once(f"{error}; trying again to delete {job}")

    def _tell_once(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self._loop.note(words)

    def _poll_if_due(self, now: float) -> None:
        is_ending = self._follower.verdict is not None or self._logs.are_ending
        if now >= self._polled + (_SOON_SECS if is_ending else _POLL_SECS):
            self._poll(now)
            self._polled = time.monotonic()

    def _poll(self, asked: float) -> None:
        """Asks for the state of the job, and why tasks wait; no line is handled meanwhile."""
        try:
            found = self._objects.poll()
        except HostError as error:
            if "(Forbidden)" in str(error) and not self._has_polled:
                raise
            if str(error) != self._outage and self._follower.verdict is None:
                self._loop.note(f"{error}; the job goes on, trying again")
            self._outage = str(error)
            return
        self._has_polled, self._outage = True, ""
        self._logs.follow(pod for pod in found.pods if pod.task in self._follower.states)
        self._loop.note(*self._follower.saw(found, asked, time.monotonic()))
        if asked >= self._warnings_due and self._follower.waiting:
            self._warnings_due = asked + _WARNINGS_SECS
            try:
                self._loop.note(*self._follower.warned(self._objects.warnings()))
            except HostError as error:
                self._tell_once(f"{error}; the job goes on, without the warnings of the cluster")

    def _put(self, event: Event) -> None:
        while not self._is_closed:
            with contextlib.suppress(queue.Full):
                self._loop.events.put(event, timeout=0.5)
                return

    def _take_line(self, pod: Pod, line: str) -> None:
        self._loop.take_lines(pod.task, pod.node, [self._mask.text(line)])
