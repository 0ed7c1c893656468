"""Creates, asks for and deletes the objects of a job: the TFJob, and what its pods need."""

import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Optional

from launch.backends.kubernetes import manifests
from launch.backends.kubernetes.kubectl import Kubectl, parsed
from launch.backends.kubernetes.manifests import Manifest
from launch.backends.kubernetes.objects import TFJobState, read_tfjob
from launch.errors import HostError
from launch.supervise.run_loop import interrupted_by_a_stop

TFJOBS = "tfjobs.kubeflow.org"
_HELPERS = "networkpolicies.networking.k8s.io,secrets"
_TIMEOUT_SECS = 15.0  # for calls while the job runs, during which no line and no signal is handled
_ADOPT_SECS = 10.0  # between two tries to make the TFJob the owner of the helpers


def look(kubectl: Kubectl, name: str) -> Optional[TFJobState]:
    """Returns the state of a TFJob; None if it does not exist.

    Raises:
      HostError: kubectl failed.
    """
    words = ("get", TFJOBS, name, "--ignore-not-found", "--output=json")
    found = kubectl(*words, timeout_secs=_TIMEOUT_SECS)
    return read_tfjob(parsed(found, "kubectl get tfjobs")) if found.strip() else None


class TFJob:
    """The objects of one job in the cluster.

    Args:
      kubectl: runs kubectl for the job's cluster and namespace.
      manifest: the manifest of the TFJob.
      helpers: the manifests of the objects that the job's pods need from the start.
      note: shows a text to the user.

    Attributes:
      name: the name of the TFJob.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        manifest: Manifest,
        helpers: Sequence[Manifest],
        note: Callable[[str], None],
    ) -> None:
        self.name: str = manifest["metadata"]["name"]
        self._kubectl, self._manifest, self._helpers = kubectl, manifest, helpers
        self._note = note
        self._uid: Optional[str] = None
        self._orphans: list[Manifest] = []  # helpers that the TFJob does not own yet
        self._adopt_due = 0.0
        self._selector = f"--selector={manifests.selector(self.name)}"

    @property
    def exists(self) -> bool:
        """Returns whether the cluster has answered that it created the TFJob."""
        return self._uid is not None

    def create(self) -> None:
        """Creates all objects, the TFJob last, because its pods need the others from the start.

        Raises:
          HostError: the cluster refuses one of them.
          Interrupted: a signal has asked for the job's end meanwhile.
        """
        with interrupted_by_a_stop():
            for one in self._helpers:
                self._kubectl("create", "--filename=-", given=json.dumps(one))
            self._uid = self._kubectl(
                "create",
                "--filename=-",
                "--output=jsonpath={.metadata.uid}",
                given=json.dumps(self._manifest),
            )
        self._orphans = list(self._helpers)
        self._note(
            f"tfjob {self.name} in namespace {self._kubectl.namespace} of {self._kubectl.context}"
        )

    def adopt(self, now: float) -> None:
        """Makes the TFJob the owner of the helpers, so that they are deleted with it.

        Whoever deletes the TFJob, Kubernetes then deletes these objects. The job does not need it,
        so after an error this is tried again.
        """
        if not self._orphans or now < self._adopt_due:
            return
        reference = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": self.name}
        owner = {**reference, "uid": self._uid}
        patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
        try:
            while self._orphans:
                one = self._orphans[0]
                target = (one["kind"].lower(), one["metadata"]["name"])
                self._ask("patch", *target, "--type=merge", f"--patch={patch}")
                self._orphans.pop(0)
        except HostError as error:
            if not self._adopt_due:
                what = f"{one['kind']} {one['metadata']['name']}"
                self._note(f"{error}; {what} is not deleted with the TFJob yet, trying again")
            self._adopt_due = now + _ADOPT_SECS

    def look(self) -> Optional[TFJobState]:
        """Returns the state of the TFJob; None if it does not exist.

        Raises:
          HostError: kubectl failed.
        """
        return look(self._kubectl, self.name)

    def delete(self) -> bool:
        """Deletes the TFJob; returns whether it existed.

        Raises:
          HostError: kubectl failed; the request may have reached the cluster.
        """
        words = ("delete", TFJOBS, self.name, "--ignore-not-found", "--wait=false")
        return bool(self._ask(*words).strip())

    def delete_pods(self) -> None:
        """Deletes the pods at once; HostError if kubectl failed."""
        pods = f"--selector={manifests.pod_selector(self.name)}"
        words = ("delete", "pods", pods, "--grace-period=1", "--wait=false", "--ignore-not-found")
        self._ask(*words)

    def remove(self, run_id: str) -> None:
        """Deletes what is left of all objects; tells the user if that fails."""
        delete = ("delete", "--ignore-not-found", "--wait=false", self._selector)
        try:
            self._ask(*delete, f"{_HELPERS},{TFJOBS}" if self.exists else _HELPERS)
        except HostError as error:
            self._note(f"{error}; to end what is left: clean --run {run_id}")
        if not self.exists:
            with contextlib.suppress(HostError):  # an answer to `create` may have been lost
                self._ask(*delete, TFJOBS)

    def _ask(self, *words: str) -> str:
        return self._kubectl(*words, timeout_secs=_TIMEOUT_SECS)
