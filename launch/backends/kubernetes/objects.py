"""Creates, polls and deletes the objects of a job: the one that stands for it, and those it owns.

With an operator, a TFJob stands for the job; without one, the Service of its Jobs.
"""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from launch.backends.kubernetes import manifests
from launch.backends.kubernetes.kubectl import Kubectl
from launch.backends.kubernetes.pod_template import Manifest
from launch.backends.kubernetes.state import Poll, Warned, read_poll, read_warnings
from launch.errors import HostError
from launch.supervise.run_loop import interrupted_by_a_stop

_TFJOBS = "tfjobs.kubeflow.org"
_HELPERS = "networkpolicies.networking.k8s.io,secrets"
_QUIETLY = ("--ignore-not-found", "--wait=false")
_POLL_TIMEOUT_SECS = 10.0
_TIMEOUT_SECS = 15.0  # for calls while the job runs, during which no line and no signal is handled


@dataclass(frozen=True)
class Form:
    """How a job is kept in a cluster.

    Attributes:
      kind: the kind of the object that stands for the job.
      plural: kubectl's word for this kind.
      deleted: kubectl's word for the kinds whose deletion ends the job.
      noun: what to call the job.
    """

    kind: str
    plural: str
    deleted: str
    noun: str


TFJOB = Form("TFJob", _TFJOBS, _TFJOBS, "TFJob")
JOBS = Form("Service", "services", "services,jobs.batch", "job")


def form_of(record: Mapping[str, str]) -> Form:
    """Returns the form of a job by what the run's record says of it."""
    return JOBS if record.get("kind") == JOBS.kind else TFJOB


def choose_form(kubectl: Kubectl, operator: str) -> Form:
    """Returns the form of a new job.

    Args:
      kubectl: asks the cluster, if need be, whether it knows TFJobs.
      operator: `tfjob`, `none`, or `auto` to ask.

    Raises:
      HostError: kubectl failed.
    """
    if operator == "auto":
        words = ("api-resources", "--api-group=kubeflow.org", "--output=name")
        operator = "tfjob" if _TFJOBS in kubectl(*words).split() else "none"
    return TFJOB if operator == "tfjob" else JOBS


def poll(kubectl: Kubectl, form: Form, name: str) -> Poll:
    """Asks for the state of a job and of its pods.

    Raises:
      HostError: kubectl failed.
    """
    selector = f"--selector={manifests.selector(name)}"
    words = ("get", f"pods,{form.plural}", selector, "--output=json")
    return read_poll(kubectl(*words, timeout_secs=_POLL_TIMEOUT_SECS), form.kind, name)


def warnings(kubectl: Kubectl, name: str, pods: Sequence[str]) -> list[Warned]:
    """Asks for the warnings about a job and its pods, the oldest first.

    Raises:
      HostError: kubectl failed.
    """
    words = ("get", "events", "--field-selector=type=Warning", "--output=json")
    return read_warnings(kubectl(*words, timeout_secs=_POLL_TIMEOUT_SECS), [name, *pods])


class Objects:
    """The objects of one job in the cluster.

    Args:
      kubectl: runs kubectl for the job's cluster and namespace.
      form: how the job is kept.
      owner: the manifest of the object that stands for the job. Whoever deletes it, Kubernetes then
        deletes all others.
      owned: the manifests of the other objects.
      note: shows a text to the user.

    Attributes:
      name: the name of the job.
      form: how the job is kept.
      exists: whether the cluster has answered that it created the owner.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        form: Form,
        owner: Manifest,
        owned: Sequence[Manifest],
        note: Callable[[str], None],
    ) -> None:
        self.name: str = owner["metadata"]["name"]
        self.form, self.exists = form, False
        self._kubectl, self._owner, self._owned, self._note = kubectl, owner, owned, note
        self._uid = ""
        self._selector = f"--selector={manifests.selector(self.name)}"

    def create(self) -> None:
        """Creates all objects. The pods wait until their Secret is there.

        Raises:
          HostError: the cluster refuses one of them.
          Interrupted: a signal has asked for the job's end meanwhile.
        """
        words = ("create", "--filename=-", "--output=jsonpath={.metadata.uid}")
        with interrupted_by_a_stop():
            self._uid = self._kubectl(*words, given=json.dumps(self._owner))
            self.exists = True
            self._create(self._owned)
        where = f"in namespace {self._kubectl.namespace} of {self._kubectl.context}"
        self._note(f"{self.form.noun.lower()} {self.name} {where}")

    def make_anew(self, manifest: Manifest) -> None:
        """Creates an object that the job owns once more, in the place of the earlier one.

        Raises:
          HostError: kubectl failed.
        """
        name = f"{manifest['kind'].lower()}s/{manifest['metadata']['name']}"
        self._kubectl("delete", name, *_QUIETLY, timeout_secs=_TIMEOUT_SECS)
        self._create([manifest], timeout_secs=_TIMEOUT_SECS)

    def _create(self, owned: Sequence[Manifest], timeout_secs: float = 60.0) -> None:
        kind = {key: self._owner[key] for key in ("apiVersion", "kind")}
        owners = [{**kind, "name": self.name, "uid": self._uid}]
        items = [
            {**one, "metadata": {**one["metadata"], "ownerReferences": owners}} for one in owned
        ]
        listed = {"apiVersion": "v1", "kind": "List", "items": items}
        words = ("create", "--filename=-")
        self._kubectl(*words, given=json.dumps(listed), timeout_secs=timeout_secs)

    def delete(self) -> None:
        """Deletes the job, and with it its pods.

        Raises:
          HostError: kubectl failed; the request may have reached the cluster.
        """
        self._delete(self.form.deleted, self._selector)

    def delete_pods(self) -> None:
        """Deletes the pods at once; HostError if kubectl failed."""
        self._delete("pods", self._selector, "--grace-period=1")

    def remove(self, run_id: str) -> None:
        """Deletes what is left of all objects; tells the user if that fails."""
        if not self.exists:
            with contextlib.suppress(HostError):  # an answer to `create` may have been lost
                self._delete(self.form.deleted, self._selector)
            return
        try:
            self._delete(f"{self.form.deleted},{_HELPERS}", self._selector)
        except HostError as error:
            self._note(f"{error}; to end what is left: clean --run {run_id}")

    def _delete(self, kinds: str, *words: str) -> None:
        self._kubectl("delete", kinds, *words, *_QUIETLY, timeout_secs=_TIMEOUT_SECS)
