"""Where the logs of runs are."""

from launch.backends.docker.backend import TRANSPORT as DOCKER
from launch.backends.local.backend import TRANSPORT as LOCAL
from launch.backends.ssh.transport import TRANSPORT as SSH


def test_agents_are_told_where_their_hosts_keep_the_logs_of_all_runs() -> None:
    assert SSH.host_logs("20260101-000000-abcd") == "~/.local/state/cifar10-launch/hosts"
    assert DOCKER.host_logs("20260101-000000-abcd") == "~/.local/state/cifar10-launch/hosts"
    assert LOCAL.host_logs("20260101-000000-abcd") is None  # the run's folder has them
