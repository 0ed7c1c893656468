"""The kubernetes backend: a Kubeflow TFJob or Jobs, which kubectl creates, follows and deletes.

The cluster runs the job, not this process: if the launcher is killed, the job goes on, and `clean`
with its run ends it.
"""

import time
from typing import Optional

from launch.backends.base import Backend
from launch.backends.kubernetes import manifests
from launch.backends.kubernetes.kubectl import JOBS, TFJOB, JobObjects, Kubectl
from launch.backends.kubernetes.settings import KubernetesSettings, settings_of
from launch.cluster import show
from launch.cluster.show import Document
from launch.cluster.tasks import Job
from launch.errors import HostError
from launch.record.outcome import Outcome
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display

_END_SECS = 180.0  # how long `clean` waits for pods to end
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
            secret = manifests.secret_name(settings_of(job.cluster).name)
            text = (
                f"# before it, from a file with NAME=VALUE lines for {', '.join(names)}:\n"
                f"#   kubectl create secret generic {secret} --from-env-file=FILE\n{text}"
            )
        return [Document("kubectl apply -f -", text)]

    def plan_text(self, job: Job) -> str:
        """Returns the manifests, without TF_CONFIG, which the operator writes."""
        return f"# {show.counts(job)} (kubernetes)\n{show.as_documents(self.plan(job))}"

    def output_folder(self, job: Job) -> Optional[str]:
        """Returns None: training writes to a volume."""
        return None

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Creates the job, follows it to its end, and deletes it."""
        from launch.backends.kubernetes.run import run

        return run(job, folder, display)

    def going_on(self, record: Record) -> str:
        """Returns the name of the run's TFJob in words; an empty string once it is over."""
        objects = _objects(record)
        if objects is None:
            return ""
        poll = objects.poll()
        is_over = poll.is_deleted or poll.succeeded or bool(poll.failed)
        if objects.form is JOBS:
            is_over = is_over or all(pod.state == "ended" for pod in poll.pods)
        return "" if is_over else f"{objects.form.noun} {objects.name}"

    def clean(self, record: Record) -> list[str]:
        """Deletes the objects with the run's labels: the job, then what the job has left."""
        objects = _objects(record)
        found = [] if objects is None else objects.left()
        if objects is None or not found:
            return []
        objects.delete()
        objects.delete_pods()
        deadline = time.monotonic() + _END_SECS
        while left := objects.left():
            if time.monotonic() > deadline:
                raise HostError(f"{', '.join(left)}: not ended {_END_SECS:g} s after the deletion")
            time.sleep(1)
        return [f"{one}: deleted" for one in found]


def _objects(record: Record) -> Optional[JobObjects]:
    """Returns the objects of a run; None if it ended before it reached the cluster."""
    place = record.get("kubernetes")
    if place is None:
        return None
    form = JOBS if place.get("kind") == JOBS.kind else TFJOB
    return JobObjects(Kubectl(place["context"], place["namespace"]), form, place["name"])
