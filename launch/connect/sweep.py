"""Ends what is left of a run, on every host of it, by the mark that its parts carry."""

from collections.abc import Mapping
from typing import Any

from launch.cluster.model import Host
from launch.connect.agent_client import Conversation
from launch.connect.everywhere import everywhere
from launch.connect.transport import Transport
from launch.errors import HostError

_PATIENCE_SECS = 5.0  # between SIGTERM and SIGKILL


def sweep(record: Mapping[str, Any], transport: Transport) -> list[str]:
    """Ends every process and container of the run that is left, on all its hosts side by side.

    Args:
      record: what was started, and where.
      transport: the way to the hosts.

    Raises:
      HostError: a host could not be looked at; the others were.
    """
    hosts = [_host(entry) for entry in record["hosts"]]

    def end_on(host: Host) -> list[str]:
        order = {
            "do": "sweep",
            "run": record["run"],
            "engine": record.get("engine"),
            "patience_secs": _PATIENCE_SECS,
        }
        with Conversation(transport, host) as agent:
            answer = agent.ask(order)
        if answer["error"] is not None:
            raise HostError(f"{host.name}: {answer['error']}")
        return [*map(str, answer["pids"]), *(name[:12] for name in answer["containers"])]

    ended = everywhere(hosts, end_on).of_all()
    return [f"{name}: ended {len(ids)} ({', '.join(ids)})" for name, ids in ended.items() if ids]


def _host(entry: Mapping[str, Any]) -> Host:
    return Host(
        name=entry["name"],
        address=entry["name"],
        roles=(),
        workdir="",
        user=entry["user"],
        agent_python=entry["agent_python"],
    )
