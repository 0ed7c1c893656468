"""A stand-in for a task's server, which answers `cifar10.guard.peers` as TensorFlow's do.

That TensorFlow's servers, and those of grpcio, answer in this way is what test_peers.py shows.
"""

import contextlib
import socketserver
import threading
import time
from collections.abc import Iterator
from typing import Callable

from cifar10.cluster.spec import Task
from cifar10.errors import ConfigError

WAIT_SECS = 30.0
_GREETING = b"\0\0\0\4\0\0\0\0\0"  # An empty SETTINGS frame of HTTP/2.


@contextlib.contextmanager
def answering(port: int = 0) -> Iterator[str]:
    """Serves at the address that is yielded, `127.0.0.1:PORT`; port 0 takes a free one."""

    class Greeter(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):  # Whoever asks may be gone.
                self.request.sendall(_GREETING)
                self.request.recv(1024)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(("127.0.0.1", port), Greeter) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECS
    while not condition():
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.01)


def refuse(task: Task) -> bool:
    raise ConfigError(f"{task} belongs to another job")
