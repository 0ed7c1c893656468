"""`up`: runs a job to its end, in the foreground."""

import argparse
import dataclasses

from launch.backends.agent_backend import AgentBackend
from launch.backends.base import CopiesCode
from launch.backends.registry import backend_named
from launch.cluster.model import Cluster
from launch.cluster.tasks import make_job
from launch.errors import LaunchError
from launch.record.run_folder import RunFolder, state_dir
from launch.screen.display import Display
from launch.verbs.closing import closing_lines


def up(cluster: Cluster, options: argparse.Namespace) -> int:
    """Runs a job to its end and returns its exit code.

    Raises:
      LaunchError: the job could not be started.
    """
    if options.restarts is not None:
        cluster = dataclasses.replace(cluster, restarts=options.restarts)
    job = make_job(cluster, options.arguments)
    backend = backend_named(cluster.backend)
    if cluster.sync:
        if not isinstance(backend, CopiesCode):
            raise LaunchError(f"sync copies code over ssh; leave it out for {cluster.backend}")
        backend.copy_code(cluster.hosts)
    if isinstance(backend, AgentBackend) and backend.is_checked_first and not options.no_check:
        from launch.verbs.check import refuse_problems

        refuse_problems(job, backend)
    folder = RunFolder.create(state_dir(options.state_dir), job)
    display = Display(live=False if options.lines else None)
    try:
        display.note(f"run {folder.run_id}: {folder.path}")
        outcome = backend.run(job, folder, display)
    finally:
        display.close()
    closing = Display(live=False)  # below the last table, if there was one
    for line in closing_lines(outcome):
        closing.note(line)
    closing.close()
    return outcome.exit_code
