"""A task's server takes what it needs of the system's limits."""

import subprocess
import sys

from testbeds.processes import free_ports
from tests.cifar10 import program

CODE = """
import resource, sys
import tensorflow.compat.v1 as tf
from cifar10.cluster import server
from cifar10.cluster.spec import Cluster

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
jobs = {"master": (sys.argv[1],), "ps": (sys.argv[2],)}
server.start(Cluster(jobs, "ps", 0, has_evaluator=False, source="TF_CONFIG"), tf.ConfigProto())
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_server_raises_its_limit_of_descriptors_as_far_as_it_may():
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    ended = subprocess.run(
        [sys.executable, "-c", CODE, *addresses],
        cwd=program.ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert ended.stdout == "(512, 512)\n"
