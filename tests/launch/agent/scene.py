"""A connected agent on this machine, for tests that give it orders."""

import os
import sys
from pathlib import Path
from typing import Any, Optional

from launch.agent.protocol import Message
from launch.backends.local import TRANSPORT
from launch.cluster.host_list import on_this_machine
from launch.connect.connections import Connections
from tests.launch.launcher import assert_nothing_left


class Scene:
    """A connected agent, as a context manager that ends it.

    Args:
      folder: the working directory, whose name makes the run's id unique in this process.
      engine: the container engine that the agent uses; None for plain processes.
    """

    def __init__(self, folder: Path, engine: Optional[Path] = None) -> None:
        self.run_id = f"scene-{os.getpid()}-{folder.name}"
        self.folder = folder
        containers = None if engine is None else {"engine": str(engine), "mounts": []}
        cluster = on_this_machine(0, 0, workdir=str(folder))
        self.connections = Connections(cluster, self.run_id, TRANSPORT, containers)
        self.events = self.connections.events

    def __enter__(self) -> "Scene":
        self.connections.open_all(lambda: False, lambda host: 0)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.connections.close_all()
        assert_nothing_left(self.run_id, timeout_secs=10)

    def send(self, do: str, **content: Any) -> None:
        """Sends an order."""
        assert self.connections.send("localhost", {"do": do, **content})

    def order(self, *argv: str, port: Optional[int] = None) -> None:
        """Orders the start of worker/0."""
        order: Message = {"task": "worker/0", "argv": list(argv), "script": None, "env": {}}
        order |= {"cwd": str(self.folder), "masked": [], "gpus": [], "share": None, "last": False}
        self.send("start", **order, port=port)

    def start(self, code: str) -> int:
        """Starts a Python task, which writes its process id, and returns that."""
        self.order(sys.executable, "-c", code)
        return int(self.wait("lines")["lines"][0])

    def wait(self, *events: str) -> Message:
        """Returns the next message about one of these events."""
        while True:
            message = self.events.get(timeout=60)[2]
            if message["event"] in events:
                return message
