"""Runs kubectl as a child process, for one answer or for a stream of lines or watch events.

The user's own kubeconfig determines how kubectl reaches a cluster, and with which permissions.
"""

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any, Optional

from launch.agent.processes import die_with
from launch.backends.kubernetes.settings import KubernetesSettings
from launch.backends.tool_errors import last_line, meaning
from launch.errors import HostError

_TIMEOUT_SECS = 60.0
_LONGEST = 1 << 16  # bytes of a line; a longer one is split


class Kubectl:
    """Runs kubectl for one namespace of one cluster.

    Args:
      context: a context of the kubeconfig; None for the current one.
      namespace: a namespace; None for the context's.
    """

    def __init__(self, context: Optional[str], namespace: Optional[str]) -> None:
        self.context = context
        self.namespace = namespace

    def __call__(self, *words: str, given: Optional[str] = None) -> str:
        """Runs one command to its end and returns its standard output.

        Args:
          *words: the command, without context and namespace.
          given: the text for its standard input; None for an empty one.

        Raises:
          HostError: kubectl is not installed, failed, or did not answer in time; the message says
            why, and the way out.
        """
        try:
            done = subprocess.run(
                self.command(*words),
                input=given or "",
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECS,
                start_new_session=True,  # so that Ctrl-C reaches only the launcher
                check=False,
            )
        except OSError as error:
            raise HostError(
                f"kubectl: {error.strerror}; install it: https://kubernetes.io/docs/tasks/tools"
            ) from None
        except subprocess.TimeoutExpired:
            raise HostError(f"kubectl {words[0]}: no answer within {_TIMEOUT_SECS:g} s") from None
        if done.returncode:
            raise HostError(self.explain(done.stderr))
        return done.stdout

    def explain(self, errors: str) -> str:
        """Returns what kubectl's standard error means, in one line."""
        known = meaning("kubectl", errors, context=self.context, namespace=self.namespace)
        if known is not None:
            return f"kubernetes: {known}"
        return f"kubectl: {last_line(errors, 'it failed without an error message')}"

    def command(self, *words: str) -> list[str]:
        """Returns the command line of kubectl, with context and namespace."""
        where = [f"--context={self.context}"] if self.context else []
        where += [f"--namespace={self.namespace}"] if self.namespace else []
        return ["kubectl", *where, *words]


def connect(settings: KubernetesSettings) -> Kubectl:
    """Returns kubectl for the current context and namespace, even if these change later.

    Args:
      settings: the settings, whose context and namespace take precedence.

    Raises:
      HostError: kubectl is not installed, or there is no such context.
    """
    asked = Kubectl(settings.context, settings.namespace)
    view = json.loads(asked("config", "view", "--minify", "--output=json"))
    context = view["contexts"][0]
    namespace = settings.namespace or context["context"].get("namespace") or "default"
    return Kubectl(context["name"], namespace)


class Stream:
    """A running kubectl, whose output a thread passes on item by item.

    Args:
      command: the command line.
      split: a function that makes items of the lines of kubectl's standard output.
      hear: a function that the thread calls with this stream and each item, and with None at the
        end of the output.
    """

    def __init__(
        self,
        command: list[str],
        split: "Callable[[Iterator[bytes]], Iterator[Any]]",
        hear: "Callable[[Stream, Any], None]",
    ) -> None:
        launcher = os.getpid()
        self._hear = hear
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            preexec_fn=lambda: die_with(launcher),
        )
        reads = (self._process.stdout, split)
        self._thread = threading.Thread(target=self._read, args=reads, daemon=True)
        self._thread.start()

    def last_words(self) -> str:
        """Returns the end of kubectl's standard error, at most 4,000 bytes."""
        self._errors.seek(0)
        return self._errors.read()[-4000:].decode(errors="replace")

    def close(self) -> None:
        """Kills kubectl, and waits for its end."""
        self._process.kill()
        self._process.wait()
        self._thread.join(5)
        self._errors.close()

    def _read(self, output: IO[bytes], split: "Callable[[Iterator[bytes]], Iterator[Any]]") -> None:
        with output:
            for item in split(iter(lambda: output.readline(_LONGEST), b"")):
                self._hear(self, item)
        self._process.wait()
        self._hear(self, None)


def stamped_lines(lines: Iterator[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yields (timestamp, text) for each line of `kubectl logs --timestamps`.

    The second and later parts of a line that was split have the timestamp "".
    """
    whole = True
    for line in lines:
        stamp, _, rest = line.rstrip(b"\r\n").partition(b" ")
        yield (stamp.decode(errors="replace"), rest) if whole else ("", line.rstrip(b"\r\n"))
        whole = line.endswith(b"\n")


def watch_events(lines: Iterator[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (event type, object) for each event of `kubectl get --output-watch-events -o json`.

    Event types are ADDED, MODIFIED and DELETED.
    """
    block = b""
    for line in lines:
        block += line
        # An event is one line, or indented JSON, depending on kubectl's version.
        if line == b"}\n" or (block.startswith(b'{"') and line.endswith(b"\n")):
            event = json.loads(block)
            block = b""
            yield event["type"], event["object"]
