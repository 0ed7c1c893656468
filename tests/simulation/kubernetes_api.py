"""A simulated API server, as kubectl shows it: watches with gaps, lists, logs, calls that fail."""

import collections
import json
from collections.abc import Callable
from typing import Any, Optional

from launch.backends.kubernetes.kubectl import Kubectl
from launch.errors import HostError
from tests.simulation.kubernetes_operator import Cluster
from tests.simulation.kubernetes_pods import SimPod
from tests.simulation.world import World

_REFUSED = "Unable to connect to the server: dial tcp 10.0.0.1:443: connect: connection refused"
_TIMEOUT_SECS = 15.0


class SimStream:
    """What `Stream` is, with the simulated API server in the place of kubectl.

    Attributes:
      lag: the longest delay of an item; streams have different ones, so that their items mix.
    """

    def __init__(self, world: World, split: Any, hear: Callable[[Any, Any], None]) -> None:
        self.closed = self.has_items = False
        self.unreadable = ""
        self.code: Optional[int] = None
        self.lag = world.rng.choice((0.0, 0.1, 0.5, 2.5))
        self._world, self._split, self._hear = world, split, hear
        self._errors = ""
        self._under_way = collections.deque[bytes]()
        self._due = 0.0

    @property
    def is_open(self) -> bool:
        """Whether items can still arrive."""
        return not self.closed and self.code is None

    def send(self, item: bytes) -> None:
        """Lets an item arrive later, after those that were sent before."""
        now = self._world.now
        self._due = max(self._due, now + (self.lag and self._world.rng.uniform(0, self.lag)))
        self._under_way.append(item)
        self._world.later(self._due - now, self._arrive)

    def _arrive(self) -> None:
        part = self._under_way.popleft()
        if self.is_open:
            for item in self._split(iter([part])):
                self.has_items = True
                self._hear(self, item)

    def end(self, code: int, errors: str = "") -> None:
        """Ends the output; what is under way is lost."""
        if self.is_open:
            self.code, self._errors = code, errors
            self._hear(self, None)

    def finish(self) -> None:
        """Ends the output after everything that is under way."""
        self._world.later(max(0.0, self._due - self._world.now) + 1e-6, self.end, 0)

    def last_words(self) -> str:
        """Returns kubectl's standard error."""
        return self._errors

    def close(self) -> None:
        """Ends the stream without a word."""
        self.closed = True
        self.code = -9 if self.code is None else self.code


class SimKubectl(Kubectl):
    """kubectl for a simulated cluster.

    Args:
      world: the world.
      cluster: what the API server shows.

    Attributes:
      down_until: when the API server answers again.
      was_down: when it last began not to answer.
      deleted: when the launcher first asked for the TFJob's deletion, whether it worked or not.
      on_delete: called when the launcher asks for the TFJob's deletion.
    """

    def __init__(self, world: World, cluster: Cluster) -> None:
        super().__init__("sim", "lab")
        self.down_until = 0.0
        self.was_down: Optional[float] = None
        self.deleted: Optional[float] = None
        self.on_delete: Callable[[], None] = lambda: None
        self.is_busy = False
        self._world, self._cluster = world, cluster
        self._watches: dict[str, list[SimStream]] = {"pods": [], "tfjob": [], "events": []}
        cluster.on_change = self._changed
        cluster.on_line = self._wrote

    @property
    def is_down(self) -> bool:
        """Whether the API server does not answer."""
        return self._world.now < self.down_until

    def command(self, *words: str) -> list[str]:
        """Returns the words alone."""
        return list(words)

    def open(self, command: list[str], split: Any, hear: Any) -> SimStream:
        """Opens what the product takes for a running kubectl."""
        stream = SimStream(self._world, split, hear)
        self._world.later(self._world.rng.choice((0.0, 0.05, 0.4)), self._serve, stream, command)
        return stream

    def go_down(self, secs: float) -> None:
        """Lets the API server answer nobody for a while."""
        self._world.say("the API does not answer for", secs)
        self.was_down = self._world.now
        self.down_until = self._world.now + secs
        self.break_watches(0.7)

    def break_watches(self, chance: float) -> None:
        """Ends each watch and each log with a chance."""
        rng = self._world.rng
        streams = [one for watches in self._watches.values() for one in watches]
        streams += [one for pod in self._cluster.pods.values() for one in pod.readers]
        for stream in streams:
            if stream.is_open and rng.random() < chance:
                stream.end(1, rng.choice(("", "error: unexpected EOF")))

    # What follows answers calls.

    def __call__(self, *words: str, given: Optional[str] = None, timeout_secs: float = 60.0) -> str:
        """Answers one call, during which the launcher does nothing else."""
        rng, is_down = self._world.rng, self.is_down
        self._wait(rng.choice((0.2, _TIMEOUT_SECS)) if is_down else rng.choice((0.0, 0.05, 0.5)))
        arrives = not is_down or rng.random() < 0.2
        answer = self._do(words, given) if arrives else ""
        if is_down:
            raise HostError(f"kubectl {words[0]}: no answer")
        self._wait(rng.choice((0.0, 0.05, 0.5)))
        return answer

    def _wait(self, secs: float) -> None:
        before, self.is_busy = self.is_busy, True
        self._world.run(self._world.now + secs, lambda: False)
        self.is_busy = before

    def _do(self, words: tuple[str, ...], given: Optional[str]) -> str:
        cluster = self._cluster
        if words[0] == "create":
            if json.loads(given or "{}").get("kind") == "TFJob":
                cluster.create()
            return "uid"
        if words[0] == "get":
            return json.dumps(cluster.tfjob()) if cluster.exists else ""
        if words[0] == "delete" and words[1] == "pods":
            for pod in list(cluster.pods.values()):
                cluster.delete(pod, "launcher", 1.0)
        elif words[0] == "delete" and any("tfjobs" in word for word in words):
            self._world.say("the launcher deletes the TFJob")
            self.on_delete()
            self.deleted = self._world.now if self.deleted is None else self.deleted
            return cluster.delete_job("launcher")
        return ""

    # What follows serves streams.

    def _serve(self, stream: SimStream, command: list[str]) -> None:
        if not stream.is_open:
            return
        if self.is_down:
            stream.end(1, _REFUSED)
        elif command[0] == "logs":
            self._serve_log(stream, command[1])
        elif "--watch" not in command:
            for pod in self._existing():
                stream.send(f"{pod.uid}\n".encode())
            stream.finish()
        else:
            self._serve_watch(stream, command[1])

    def _serve_watch(self, stream: SimStream, what: str) -> None:
        kind = what if what in self._watches else "tfjob"
        if kind == "pods":
            for pod in self._existing():
                stream.send(_event("ADDED", pod.as_object()))
        elif kind == "tfjob":
            if not self._cluster.exists:
                stream.end(1, 'Error from server (NotFound): tfjobs.kubeflow.org "sim" not found')
                return
            stream.send(_event("ADDED", self._cluster.tfjob()))
        self._watches[kind] = [*(one for one in self._watches[kind] if one.is_open), stream]
        self._world.later(self._world.rng.choice((3.0, 20.0, 60.0, 300.0)), stream.end, 0)

    def _existing(self) -> list[SimPod]:
        return sorted(
            (pod for pod in self._cluster.pods.values() if pod.exists), key=lambda pod: pod.name
        )

    def _serve_log(self, stream: SimStream, name: str) -> None:
        pod = next((pod for pod in self._existing() if pod.name == name), None)
        if pod is None:
            stream.end(1, f'Error from server (NotFound): pods "{name}" not found')
        elif not pod.has_started:
            stream.end(1, "container is waiting to start: ContainerCreating")
        else:
            for line in pod.lines:
                stream.send(line)
            pod.readers.append(stream)
            if pod.has_ended:
                stream.finish()

    def _wrote(self, pod: SimPod, line: Optional[bytes]) -> None:
        for stream in pod.readers:
            if line is None:
                stream.finish()
            elif stream.is_open:
                stream.send(line)

    def _changed(self, kind: str, event: str, what: Any) -> None:
        data = None
        for stream in self._watches[kind]:
            if stream.is_open:
                data = data or _event(event, what)
                stream.send(data)
                if self._world.rng.random() < 0.05 and event == "MODIFIED":
                    stream.send(data)


def _event(kind: str, what: Any) -> bytes:
    return json.dumps({"type": kind, "object": what}).encode() + b"\n"
