"""Runs kubectl as a child process: creates, polls and deletes the objects of a job.

The user's own kubeconfig determines how kubectl reaches a cluster, and with which permissions. The
Service of its Jobs stands for a job: it owns all other objects, so that Kubernetes deletes them
with it.
"""

import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import Optional

import yaml

from launch.backends.kubernetes import state
from launch.backends.kubernetes.manifests import OURS, RESTARTS, Manifest, annotated, selector
from launch.backends.kubernetes.settings import KubernetesSettings
from launch.backends.kubernetes.state import Poll
from launch.connect.tools import await_end, call, last_line
from launch.errors import HostError, NotHereError
from launch.record.run_folder import Record

_TIMEOUT_SECS = 60.0
_CALL_SECS = 10.0  # for calls while the job runs
_END_SECS = 180.0  # for pods to end
_INSTALL = "install it: https://kubernetes.io/docs/tasks/tools"
_NO_CONTEXT = (
    "kubernetes: kubectl has no current context; choose one: kubectl config use-context NAME, or "
    "say `context:` under `kubernetes:`"
)
_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<what>[^"]+)"'
    r'(?: in API group "[^"]*")?(?: in the namespace "(?P<where>[^"]+)")?'
)
_RUN = "cifar10-launch/run"  # annotation of the Service: the run's record
_QUIETLY = ("--ignore-not-found", "--wait=false")


class ForbiddenError(HostError):
    """The user lacks a right in the cluster."""


class Kubectl:
    """Runs kubectl for one namespace of one cluster.

    Args:
      context: a context of the kubeconfig; None for the current one.
      namespace: a namespace; None for the context's.
    """

    def __init__(self, context: Optional[str], namespace: Optional[str]) -> None:
        self.context, self.namespace = context, namespace

    def __call__(self, *words: str, given: str = "", timeout_secs: float = _TIMEOUT_SECS) -> str:
        """Runs one command to its end and returns its standard output.

        Args:
          *words: the command, without context and namespace.
          given: the text for its standard input.
          timeout_secs: how long to wait for its end.

        Raises:
          HostError: kubectl is not installed, failed, or did not answer in time; the message says
            why, and a hint what to do. It is a ForbiddenError if the user lacks the right.
        """
        done = call(self.command(*words), timeout_secs, _INSTALL, given=given)
        if done.returncode:
            raise self.error(done.stderr)
        return done.stdout

    def create(self, items: Sequence[Manifest], *words: str, secs: float = _TIMEOUT_SECS) -> str:
        """Creates objects; returns what kubectl prints; see `__call__`."""
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        return self("create", *words, "--filename=-", given=listed, timeout_secs=secs)

    def missing_rights(self) -> list[str]:
        """Returns the rights of the Role in docs/launch.md that the user lacks.

        Raises:
          HostError: kubectl does not answer.
        """
        role = resources.files("launch.backends.kubernetes") / "templates" / "role.yaml"
        missing = []
        self("auth", "can-i", "--list")  # a cluster that does not answer lacks no right
        for rule in yaml.safe_load(role.read_text("utf-8"))["rules"]:
            (group,), (what,) = rule["apiGroups"], rule["resources"]
            plural, _, part = what.partition("/")
            resource = [f"{plural}.{group}" if group else plural, f"--subresource={part}"]
            for verb in rule["verbs"]:
                command = self.command("auth", "can-i", verb, *resource)
                if call(command, _TIMEOUT_SECS, _INSTALL).stdout.strip() != "yes":
                    missing.append(f"{verb} {what}")
        return missing

    def error(self, errors: str) -> HostError:
        """Returns what kubectl's standard error means, in one line."""
        if lacks := _FORBIDDEN.search(errors):
            user, verb, what, where = lacks["user"], lacks["verb"], lacks["what"], lacks["where"]
            words = f"user {user} may not {verb} {what} in namespace {where or self.namespace}"
            return ForbiddenError(f"kubernetes: {words}; docs/launch.md has the Role to ask for")
        if re.search("current-context (must exist|is not set)", errors):
            return NotHereError(_NO_CONTEXT)
        last = last_line(errors, "it failed without an error message")
        error = ForbiddenError if "(Forbidden)" in last else HostError  # as by a quota
        return error(f"kubectl: {last}")

    def command(self, *words: str) -> list[str]:
        """Returns the command line of kubectl, with context and namespace."""
        where = [f"--context={self.context}"] if self.context else []
        where += [f"--namespace={self.namespace}"] if self.namespace else []
        return ["kubectl", *where, *words]


def connect(settings: KubernetesSettings) -> Kubectl:
    """Returns kubectl for the current context and namespace, even if these change later.

    Args:
      settings: the settings, whose context and namespace take precedence.

    Raises:
      HostError: kubectl is not installed, or there is no such context.
    """
    shown = "--output=jsonpath={.contexts[0].name} {.contexts[0].context.namespace}"
    view = Kubectl(settings.context, settings.namespace)("config", "view", "--minify", shown)
    name, _, namespace = view.strip().partition(" ")
    return Kubectl(name, settings.namespace or namespace or "default")


class JobObjects:
    """The objects of one job in the cluster.

    Args:
      kubectl: runs kubectl for the job's cluster and namespace.
      name: the name of the job.

    Attributes:
      title: what to call the job.
      owner: the Service that stands for the job, as others refer to it; {} until it is created.
    """

    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self.kubectl, self.name = kubectl, name
        self.title = f"job {name}"
        self.owner: Manifest = {}

    def create(self, owner: Manifest, owned: Sequence[Manifest], record: Record) -> None:
        """Creates all objects. The pods wait until their Secret is there.

        Args:
          owner: the manifest of the Service that stands for the job.
          owned: the manifests of the others.
          record: what another launcher needs to know of the run, which the Service keeps.

        Raises:
          NotHereError: the cluster refuses the first of them, the Service, or cannot be reached.
          HostError: it refuses another one, or no answer came, so that the Service may be there.
        """
        found = annotated(owner, **{_RUN: json.dumps(record)})
        command = self.kubectl.command("create", "-f-", "--output=jsonpath={.metadata.uid}")
        done = call(command, _TIMEOUT_SECS, _INSTALL, given=json.dumps(found))
        if done.returncode:
            raise NotHereError(str(self.kubectl.error(done.stderr)))
        self._own(done.stdout)
        self._create(owned, _TIMEOUT_SECS)

    def rejoin(self) -> dict[str, Manifest]:
        """Returns the manifests of the Jobs in the cluster, by their tasks; HostError if none."""
        owners, jobs = state.read_jobs(self._get("services,jobs.batch", secs=_TIMEOUT_SECS))
        if not owners:
            raise HostError(f"{self.title} is not in namespace {self.kubectl.namespace} any more")
        self._own(owners[0])
        return jobs

    def record(self, run_id: str) -> Optional[Record]:
        """Returns a run's record, as its Service has it; None if there is no job of it."""
        with state.items_of(self._get("services", OURS)) as items:
            notes = [item["metadata"].get("annotations", {}) for item in items]
            records = [json.loads(note[_RUN]) for note in notes if _RUN in note]
            return next((record for record in records if record["run"] == run_id), None)

    def _own(self, uid: str) -> None:
        self.owner = {"apiVersion": "v1", "kind": "Service", "name": self.name, "uid": uid}

    def refusals(self) -> dict[str, str]:
        """Returns Job's name -> why Kubernetes could not create its pod; HostError if it fails."""
        chosen = "--field-selector=reason=FailedCreate,involvedObject.kind=Job"
        return state.read_refusals(self._get("events", chosen))

    def make_anew(self, manifest: Manifest, restarts: int) -> None:
        """Creates a Job once more, in the place of the earlier one; HostError if kubectl failed."""
        self.remove(manifest)
        self._create([annotated(manifest, **{RESTARTS: str(restarts)})], _CALL_SECS)

    def remove(self, manifest: Manifest) -> None:
        """Deletes a Job, and with it its pods; HostError if kubectl failed."""
        name = f"jobs.batch/{manifest['metadata']['name']}"
        self.kubectl("delete", name, *_QUIETLY, timeout_secs=_CALL_SECS)

    def poll(self) -> Poll:
        """Asks for the state of the job and of its pods; HostError if kubectl failed."""
        return state.read_poll(self._get("pods,jobs.batch,services"))

    def _get(self, kinds: str, chosen: str = "", secs: float = _CALL_SECS) -> str:
        words = ("get", kinds, chosen or selector(self.name), "--output=json")
        return self.kubectl(*words, timeout_secs=secs)

    def delete(self, kinds: str = "services", *words: str) -> None:
        """Deletes the job, and with it its pods; or its objects of other kinds alone.

        Raises:
          HostError: kubectl failed; the request may have reached the cluster.
        """
        words = (kinds, selector(self.name), *words, *_QUIETLY)
        self.kubectl("delete", *words, timeout_secs=_CALL_SECS)

    def left(self) -> list[str]:
        """Returns what exists of the job, as `kind/name`; HostError if kubectl failed."""
        return self.kubectl("get", "services,pods", selector(self.name), "--output=name").split()

    def state(self) -> str:
        """Returns what to call the job; "" once it is over; HostError if kubectl failed."""
        found = self.poll()
        is_over = found.is_deleted or all(pod.state == "ended" for pod in found.pods)
        return "" if is_over else self.title

    def end(self, *, now: bool) -> list[str]:
        """Deletes all that is left of the job, and waits for its end; see `RemoteJob`."""
        found = self.left()
        if found:
            self.delete("jobs.batch")
            self.delete("pods", *(["--grace-period=1"] if now else []))

        def left() -> str:
            left = self.left()
            if left == [f"service/{self.name}"]:  # the last, so that tasks find each other
                self.delete()
            return ", ".join(left)

        await_end(left, _END_SECS)
        return [f"{name}: deleted" for name in found]

    def _create(self, owned: Sequence[Manifest], secs: float) -> None:
        owners = {"ownerReferences": [self.owner]}
        items = [{**item, "metadata": {**item["metadata"], **owners}} for item in owned]
        self.kubectl.create(items, secs=secs)
