"""The kubernetes backend: a Kubeflow TFJob or Jobs, which kubectl creates, follows and deletes.

The cluster runs the job, not this process: if the launcher is killed, the job goes on, and `clean`
with its run ends it.
"""

import json
import time
from typing import Optional

from launch.backends.base import Backend
from launch.backends.kubernetes import manifests, objects
from launch.backends.kubernetes.kubectl import Kubectl
from launch.backends.kubernetes.pod_template import secret_name
from launch.backends.kubernetes.settings import KubernetesSettings, settings_of
from launch.cluster import show
from launch.cluster.show import Document
from launch.cluster.tasks import Job
from launch.errors import HostError
from launch.record.outcome import Outcome
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display

_END_SECS = 180.0  # how long `clean` waits for pods to end
_KINDS = "pods,services,networkpolicies.networking.k8s.io,secrets"


_AUTO = "`operator: auto`: a TFJob; where the cluster has none, `up` creates what `none` plans"


class Kubernetes(Backend):
    """Runs all tasks as one TFJob, or as a Job each where there is no training operator."""

    name = "kubernetes"
    chooses_hosts = True
    host_per_task = True
    has_image = True
    settings = KubernetesSettings

    def plan(self, job: Job) -> list[Document]:
        """Returns the manifests for `kubectl apply -f -`, without the values of variables."""
        text = manifests.as_yaml(manifests.planned(job))
        names = show.variables(job)
        if settings_of(job.cluster).operator == "auto":
            text = f"# {_AUTO}\n{text}"
        if names:
            secret = secret_name(settings_of(job.cluster).name)
            text = (
                f"# before it, from a file with NAME=VALUE lines for {', '.join(names)}:\n"
                f"#   kubectl create secret generic {secret} --from-env-file=FILE\n{text}"
            )
        return [Document("kubectl apply -f -", text)]

    def plan_text(self, job: Job) -> str:
        """Returns the manifests, without TF_CONFIG, which the operator writes."""
        return f"# {show.counts(job)} (kubernetes)\n{show.as_documents(self.plan(job))}"

    def plan_json(self, job: Job) -> str:
        """Returns the manifests and the names of the variables, as JSON."""
        shown = {"manifests": manifests.planned(job), "environment": show.variables(job)}
        return json.dumps({"backend": "kubernetes", **shown}, indent=2)

    def output_folder(self, job: Job) -> Optional[str]:
        """Returns None: training writes to a volume."""
        return None

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Creates the job, follows it to its end, and deletes it."""
        from launch.backends.kubernetes.run import run

        return run(job, folder, display)

    def going_on(self, record: Record) -> str:
        """Returns the name of the run's TFJob in words; an empty string once it is over."""
        place = record.get("kubernetes")
        if place is None:
            return ""  # the run ended before it reached the cluster
        form = objects.form_of(place)
        poll = objects.poll(Kubectl(place["context"], place["namespace"]), form, place["name"])
        state = poll.job
        if form is objects.JOBS and all(pod.state == "ended" for pod in poll.pods):
            return ""
        if state is None or state.succeeded or state.failed is not None or state.deleted:
            return ""
        return f"{form.noun} {place['name']}{' is suspended' if state.suspended else ''}"

    def clean(self, record: Record) -> list[str]:
        """Deletes the objects with the run's labels: the job, then what the job has left."""
        place = record.get("kubernetes")
        if place is None:
            return []  # the run ended before it reached the cluster
        kubectl, form = Kubectl(place["context"], place["namespace"]), objects.form_of(place)
        selector = f"--selector={manifests.selector(place['name'])}"
        owned = f"--selector={manifests.pod_selector(place['name'])}"
        found: list[str] = []
        for chosen in (selector, owned):
            found += kubectl("get", f"{form.deleted},{_KINDS}", chosen, "--output=name").split()
        if not found:
            return []
        kubectl("delete", form.deleted, selector, "--ignore-not-found", "--wait=false")
        deadline = time.monotonic() + _END_SECS
        while left := kubectl("get", "pods", owned, "--output=name").split():
            if time.monotonic() > deadline:
                raise HostError(f"{', '.join(left)}: not ended {_END_SECS:g} s after the deletion")
            time.sleep(1)
        kubectl("delete", "pods,services", owned, "--ignore-not-found", "--wait=false")
        rest = "networkpolicies.networking.k8s.io,secrets"
        kubectl("delete", rest, selector, "--ignore-not-found", "--wait=false")
        return [f"{one}: deleted" for one in dict.fromkeys(found)]
