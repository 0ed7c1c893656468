"""The process that --autotune starts: forks one for each setting, which time training steps.

    python -m cifar10.run.autotune.fork_server

A process has one pool of threads inside ops, so each setting is measured in its own. TensorFlow
takes seconds to load; it is loaded here once, and none of it runs before the forks.

Lines of JSON go to and fro. An order is a list of configurations, which is answered with null once
each of them has trained a step, and puts an end to those before; or [index, seconds], answered with
the median seconds of that configuration's steps in that time, one step at least. Where a process
fails, the answer is {"error": its last words}. All end with the standard input of this one, even in
the middle of a step: they do not outlive who started it.
"""

import gc
import json
import multiprocessing
import os
import socket
import tempfile
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from cifar10.config.train_config import TrainConfig
from cifar10.host.cpu import count_cores
from cifar10.run.autotune.last_words import last_words
from cifar10.run.autotune.step import Trainer

_FORKING = multiprocessing.get_context("fork")


def main() -> None:
    """Answers orders until there are no more."""
    client = socket.socket(fileno=os.dup(0))
    # Whatever prints to standard output from now on prints to standard error.
    os.dup2(2, 1)
    server = _Server(client)
    gc.freeze()  # What has been loaded is not to be searched for garbage by each fork, and copied.
    for line in client.makefile("r"):
        try:
            answer = server.answer(json.loads(line))
        except _ClientGone:
            break
        except (_ForkError, OSError) as error:
            answer = {"error": str(error)}
        client.sendall(json.dumps(answer).encode() + b"\n")


class _ClientGone(Exception):
    """Who started this process has ended, or wants nothing any more."""


class _ForkError(Exception):
    """A fork has ended; the message is its last line."""


class _Server:
    """The forks, by the index of their configuration."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._forks: dict[int, _Fork] = {}

    def answer(self, order: Any) -> Any:
        """Does what an order says.

        Raises:
          OSError: a process cannot be started.
          _ForkError: a fork has ended.
          _ClientGone: the client has.
        """
        if isinstance(order[0], dict):
            return self._prepare([TrainConfig(**{**values, "images": ()}) for values in order])
        index, seconds = order
        fork = self._forks[index]
        fork.tell(seconds)
        self._wait_for([fork])
        return fork.answer()

    def _prepare(self, configs: Sequence[TrainConfig]) -> None:
        """As many at once as there are cores, those with the largest graphs first."""
        for fork in self._forks.values():
            fork.end()
        self._forks = {}
        waiting = sorted(range(len(configs)), key=lambda index: configs[index].num_towers or 0)
        busy: list[_Fork] = []
        while waiting or busy:
            if waiting and len(busy) < count_cores():
                index = waiting.pop()
                self._forks[index] = _Fork(configs[index])
                busy.append(self._forks[index])
                continue
            for fork in self._wait_for(busy):
                fork.answer()
                busy.remove(fork)

    def _wait_for(self, forks: Sequence["_Fork"]) -> list["_Fork"]:
        by_connection = {fork.connection: fork for fork in forks}
        ready = wait([self._client, *by_connection])
        # The client says nothing while it waits, so what comes is its end.
        if self._client in ready:
            raise _ClientGone
        return [fork for connection, fork in by_connection.items() if connection in ready]


class _Fork:
    """The process of one configuration."""

    def __init__(self, config: TrainConfig) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.connection, its = _FORKING.Pipe()
        arguments = (config, its, self._errors.fileno())
        # A daemon: it ends with this process.
        self._process = _FORKING.Process(target=_time_steps, args=arguments, daemon=True)
        self._process.start()
        its.close()

    def tell(self, seconds: float) -> None:
        """Lets it train for that long.

        Raises:
          _ForkError: the process has ended.
        """
        try:
            self.connection.send(seconds)
        except OSError:
            raise _ForkError(self._last_words()) from None

    def answer(self) -> Any:
        """Waits for the next answer.

        Raises:
          _ForkError: the process has ended.
        """
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise _ForkError(self._last_words()) from None

    def end(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self.connection.close()
        self._errors.close()

    def _last_words(self) -> str:
        self._process.join()
        return last_words(self._errors, self._process.exitcode)


def _time_steps(config: TrainConfig, connection: Connection, errors: int) -> None:
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Rewriting takes a second for fastnet, as much as the steps, and favours no setting.
    trainer = Trainer(config, rewrites=False)
    connection.send(None)
    while True:
        connection.send(trainer.step_secs(connection.recv()))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)


if __name__ == "__main__":
    main()
