"""Ends what is left of a run on all its hosts, found by the marks of its processes."""

from collections.abc import Mapping
from typing import Any

from launch.cluster.model import Host
from launch.connect.agent_client import conversation
from launch.connect.everywhere import everywhere
from launch.connect.transport import Transport
from launch.errors import HostError

_PATIENCE_SECS = 5.0  # between SIGTERM and SIGKILL


def sweep(record: Mapping[str, Any], transport: Transport) -> list[str]:
    """Ends every process and container of the run that is left, on all its hosts side by side.

    Args:
      record: the run's `run.json`.
      transport: the way to the hosts.

    Returns:
      A line for each host where something was ended.

    Raises:
      HostError: a host could not be looked at; the others were.
    """
    order = {
        "do": "sweep",
        "run": record["run"],
        "engine": record.get("engine"),
        "patience_secs": _PATIENCE_SECS,
    }
    hosts = [
        Host(
            name=entry["name"],
            address=entry["name"],
            roles=(),
            workdir="",
            user=entry["user"],
            agent_python=entry["agent_python"],
        )
        for entry in record["hosts"]
    ]

    def end_on(host: Host) -> list[str]:
        with conversation(transport, host) as ask:
            answer = ask(order)
        if answer["error"] is not None:
            raise HostError(f"{host.name}: {answer['error']}")
        return [*map(str, answer["pids"]), *(name[:12] for name in answer["containers"])]

    ended = everywhere(hosts, end_on).of_all()
    return [f"{name}: ended {len(ids)} ({', '.join(ids)})" for name, ids in ended.items() if ids]
