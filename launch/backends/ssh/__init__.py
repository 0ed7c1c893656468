"""Runs tasks as processes on other machines, under agents that OpenSSH starts."""

from launch.cluster.kind import Kind


def _load() -> object:
    from launch.backends.ssh.backend import Ssh

    return Ssh()


KIND = Kind("ssh", _load)
