"""Runs tasks as processes on this machine, under one agent."""

from launch.cluster.kind import Kind
from launch.cluster.model import FREE_PORTS


def _load() -> object:
    from launch.backends.local.backend import Local

    return Local()


KIND = Kind("local", _load, is_this_machine=True, default_ports=FREE_PORTS)
