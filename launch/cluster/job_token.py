"""The job token: a random text that all tasks of one run get, and by which they know each other.

A task that is started again gets the same one. Plans do not contain a token, so that the plan of a
description stays the same: a run makes its token when it starts.
"""

import secrets
from dataclasses import replace

from launch.cluster.tasks import Job

TOKEN = "CIFAR10_JOB_TOKEN"
_BYTES = 16


def with_token(job: Job) -> Job:
    """Returns the job with a new token among its variables, unless the user gives one."""
    cluster = job.cluster
    if TOKEN in (*dict(cluster.environment), *cluster.passed):
        return job
    variables = (*cluster.environment, (TOKEN, secrets.token_hex(_BYTES)))
    return replace(job, cluster=replace(cluster, environment=variables))
