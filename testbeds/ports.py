"""Free TCP ports for test clusters, held by this process until it ends."""

import atexit
import socket

from launch.agent.tcp_ports import hold
from testbeds.errors import TestbedError

_held: list[socket.socket] = []


def free_ports(count: int) -> list[int]:
    """Returns free TCP ports, which this process holds until it ends.

    Until then, no outgoing connection and no other process that calls this function gets them. A
    server with SO_REUSEADDR may listen there. A process never gets a port twice: where gRPC could
    not connect, it does not try again for up to two minutes, although a server may have started
    there meanwhile.

    Raises:
      TestbedError: fewer than `count` ports are free.
    """
    held = hold(count)
    if len(held) < count:
        raise TestbedError(f"{len(held)} free ports, {count} are needed")
    _held.extend(held)
    return [int(holder.getsockname()[1]) for holder in held]


@atexit.register
def _release() -> None:
    for held in _held:
        held.close()
