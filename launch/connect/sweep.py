"""Ends what a run has left behind on its hosts, found by the marks of the run."""

from collections.abc import Mapping, Sequence
from typing import Any

from launch.cluster.model import Host
from launch.connect.agent_client import Closing, conversation
from launch.connect.everywhere import everywhere
from launch.connect.transport import Transport
from launch.errors import HostError

_PATIENCE_SECS = 5.0  # between SIGTERM and SIGKILL


def sweep(record: Mapping[str, Any], transport: Transport, stops: Sequence[int]) -> list[str]:
    """Ends the remaining processes and containers of a run, on all its hosts in parallel.

    Signals that ask for the end close the connections, and raise SystemExit (128 + n).

    Args:
      record: the content of the run's `run.json`.
      transport: how the launcher reaches the hosts.
      stops: a list to which each such signal is added.

    Returns:
      A line for each host where something was ended.

    Raises:
      HostError: a host could not be reached, or its containers could not be removed; the other
        hosts were swept.
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

    closing = Closing(stops)

    def end_on(host: Host) -> list[str]:
        with conversation(transport, host, closing.note) as ask:
            answer = ask(order)
        if answer["error"] is not None:
            raise HostError(f"{host.name}: {answer['error']}")
        return [*map(str, answer["pids"]), *(name[:12] for name in answer["containers"])]

    answers = everywhere(hosts, end_on, meanwhile=closing.look)
    if stops:
        raise SystemExit(128 + stops[0])
    ended = answers.of_all()
    return [f"{name}: ended {len(ids)} ({', '.join(ids)})" for name, ids in ended.items() if ids]
