"""Creates, polls and deletes the objects of a job: the TFJob, and what it owns."""

import contextlib
import json
from collections.abc import Callable, Sequence

from launch.backends.kubernetes import manifests
from launch.backends.kubernetes.kubectl import Kubectl
from launch.backends.kubernetes.pod_template import Manifest
from launch.backends.kubernetes.state import Poll, Warned, read_poll, read_warnings
from launch.errors import HostError
from launch.supervise.run_loop import interrupted_by_a_stop

TFJOBS = "tfjobs.kubeflow.org"
_HELPERS = "networkpolicies.networking.k8s.io,secrets"
_POLL_TIMEOUT_SECS = 10.0
_TIMEOUT_SECS = 15.0  # for calls while the job runs, during which no line and no signal is handled


def poll(kubectl: Kubectl, name: str) -> Poll:
    """Asks for the state of a job and of its pods.

    Raises:
      HostError: kubectl failed.
    """
    selector = f"--selector={manifests.selector(name)}"
    words = ("get", f"pods,{TFJOBS}", selector, "--output=json")
    return read_poll(kubectl(*words, timeout_secs=_POLL_TIMEOUT_SECS), "TFJob", name)


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
      owner: the manifest of the TFJob. Whoever deletes it, Kubernetes then deletes all others.
      owned: the manifests of the other objects.
      note: shows a text to the user.

    Attributes:
      name: the name of the TFJob.
      exists: whether the cluster has answered that it created the TFJob.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        owner: Manifest,
        owned: Sequence[Manifest],
        note: Callable[[str], None],
    ) -> None:
        self.name: str = owner["metadata"]["name"]
        self.exists = False
        self._kubectl, self._owner, self._owned, self._note = kubectl, owner, owned, note
        self._selector = f"--selector={manifests.selector(self.name)}"

    def create(self) -> None:
        """Creates all objects. The pods wait until their Secret is there.

        Raises:
          HostError: the cluster refuses one of them.
          Interrupted: a signal has asked for the job's end meanwhile.
        """
        words = ("create", "--filename=-", "--output=jsonpath={.metadata.uid}")
        with interrupted_by_a_stop():
            uid = self._kubectl(*words, given=json.dumps(self._owner))
            self.exists = True
            owner = {key: self._owner[key] for key in ("apiVersion", "kind")}
            owners = [{**owner, "name": self.name, "uid": uid}]
            items = [
                {**one, "metadata": {**one["metadata"], "ownerReferences": owners}}
                for one in self._owned
            ]
            listed = {"apiVersion": "v1", "kind": "List", "items": items}
            self._kubectl("create", "--filename=-", given=json.dumps(listed))
        self._note(
            f"tfjob {self.name} in namespace {self._kubectl.namespace} of {self._kubectl.context}"
        )

    def delete(self) -> None:
        """Deletes the TFJob, and with it all others.

        Raises:
          HostError: kubectl failed; the request may have reached the cluster.
        """
        self._delete(TFJOBS, self._selector)

    def delete_pods(self) -> None:
        """Deletes the pods at once; HostError if kubectl failed."""
        self._delete("pods", self._selector, "--grace-period=1")

    def remove(self, run_id: str) -> None:
        """Deletes what is left of all objects; tells the user if that fails."""
        if not self.exists:
            with contextlib.suppress(HostError):  # an answer to `create` may have been lost
                self._delete(TFJOBS, self._selector)
            return
        try:
            self._delete(f"{TFJOBS},{_HELPERS}", self._selector)
        except HostError as error:
            self._note(f"{error}; to end what is left: clean --run {run_id}")

    def _delete(self, kinds: str, *words: str) -> None:
        always = ("--ignore-not-found", "--wait=false")
        self._kubectl("delete", kinds, *words, *always, timeout_secs=_TIMEOUT_SECS)
