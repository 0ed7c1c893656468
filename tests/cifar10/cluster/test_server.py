"""A task's server takes what it needs of the system's limits."""

from testbeds.ports import free_ports

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


def test_a_server_raises_its_limit_of_descriptors_as_far_as_it_may(forks):
    ended = forks.run_code(CODE, *(f"127.0.0.1:{port}" for port in free_ports(2)))
    assert ended.stdout == "(512, 512)\n"


STRANGER = """
import sys
import tensorflow.compat.v1 as tf
from cifar10.cluster import server
from cifar10.cluster.spec import Cluster

tf.disable_eager_execution()
master, ps = sys.argv[1:]
jobs = {"master": (master,), "ps": (ps,)}
serving = server.start(
    Cluster(jobs, "ps", 0, has_evaluator=False, source="TF_CONFIG"), tf.ConfigProto()
)
with tf.device("/job:ps/task:0"):
    weights = tf.get_variable("weights", initializer=1.0, use_resource=True)
port = ps.rpartition(":")[2]
for name in ("127.0.0.1", "127.0.0.2", "[::1]"):
    config = tf.ConfigProto(device_filters=["/job:ps"])
    with tf.Session(f"grpc://{name}:{port}", config=config) as session:
        session.run(weights.initializer)
        print(name, session.run(weights.assign_add(41.0)))
"""


def test_whoever_reaches_a_server_at_any_address_of_its_host_can_change_what_it_holds(forks):
    """This is no promise, but why docs/launch.md asks for a firewall."""
    ended = forks.run_code(STRANGER, *(f"127.0.0.1:{port}" for port in free_ports(2)))
    assert ended.stdout.splitlines() == ["127.0.0.1 42.0", "127.0.0.2 42.0", "[::1] 42.0"]
