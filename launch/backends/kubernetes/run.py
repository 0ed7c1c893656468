"""Runs a TFJob: creates it, follows it to its end, and deletes it."""

import queue
import signal
import time

from launch.backends.kubernetes import manifests
from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.kubectl import connect
from launch.backends.kubernetes.runner import Event, Left, Runner
from launch.backends.kubernetes.settings import settings_of
from launch.backends.kubernetes.tfjob import TFJob
from launch.cluster.tasks import Job, with_token
from launch.errors import LaunchError
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.journal import run_ends
from launch.supervise.run import passed_values
from launch.supervise.run_loop import RunLoop, stop_signals

_BACKLOG = 2000  # items of streams; when the queue is full, streams wait


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
    manifest = manifests.tfjob(job, f"{settings.name}-{folder.run_id}")
    kubectl = connect(settings)
    name = manifest["metadata"]["name"]
    place = {"context": kubectl.context, "namespace": kubectl.namespace, "name": name}
    folder.add(kubernetes=place)
    with stop_signals() as signals:
        follower = Follower(job.tasks, job.cluster.limits, job.cluster.restarts, time.monotonic())
        events: queue.Queue[Event] = queue.Queue(_BACKLOG)
        loop = RunLoop(follower, folder, display, events, signals, keeps_logs=True)
        values = {**dict(job.cluster.environment), **passed}
        helpers = [manifests.network_policy(job, name), manifests.secret(job, name, values)]
        tfjob = TFJob(kubectl, manifest, helpers, loop.note)
        runner = Runner(kubectl, tfjob, follower, loop, list(passed.values()))
        is_left = False
        try:
            outcome = loop.run(runner)
            run_ends(folder, outcome)
            return outcome
        except Left:
            is_left = True
            words = f"not followed any more; TFJob {name} goes on; to end it: clean --run "
            return Outcome(128 + signal.SIGHUP, f"{words}{folder.run_id}", cause=Cause.USER)
        except Exception as error:
            if tfjob.exists and not isinstance(error, LaunchError):
                is_left = True
                loop.note(f"TFJob {name} goes on; to end it: clean --run {folder.run_id}")
            raise
        finally:
            runner.close()
            if signals and not tfjob.exists:
                loop.note("deleting what kubectl may have created")
            if not is_left:
                tfjob.remove(folder.run_id)
