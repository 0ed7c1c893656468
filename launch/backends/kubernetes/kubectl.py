"""kubectl as a child process: one answer, or a stream of lines or of watch events.

The user's own kubeconfig says how a cluster is reached, and with which rights.
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
_LONGEST = 1 << 16  # bytes of one line


class Kubectl:
    """kubectl for one namespace of one cluster.

    Args:
      context: of the kubeconfig; None takes the current one.
      namespace: None takes the context's.
    """

    def __init__(self, context: Optional[str], namespace: Optional[str]) -> None:
        self.context = context
        self.namespace = namespace

    def __call__(self, *words: str, given: Optional[str] = None) -> str:
        """Runs one command to its end and returns its standard output.

        Args:
          *words: the command, without context and namespace.
          given: its standard input.

        Raises:
          HostError: it failed; says why, and the way out.
        """
        try:
            done = subprocess.run(
                self.command(*words),
                input=given or "",
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECS,
                start_new_session=True,  # Ctrl-C is for the launcher
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
        return f"kubectl: {last_line(errors, 'it failed without a word')}"

    def command(self, *words: str) -> list[str]:
        """The command line."""
        where = [f"--context={self.context}"] if self.context else []
        where += [f"--namespace={self.namespace}"] if self.namespace else []
        return ["kubectl", *where, *words]


def connect(settings: KubernetesSettings) -> Kubectl:
    """Looks up the current context and namespace, so that they stay the same from now on.

    Raises:
      HostError: there is no kubectl, or no such context.
    """
    asked = Kubectl(settings.context, settings.namespace)
    view = json.loads(asked("config", "view", "--minify", "--output=json"))
    context = view["contexts"][0]
    namespace = settings.namespace or context["context"].get("namespace") or "default"
    return Kubectl(context["name"], namespace)


class Stream:
    """A kubectl that keeps running; hands what it writes to `hear`, and None at its end.

    Args:
      command: the command line.
      split: makes items of the lines of its standard output.
      hear: is called in a thread with this stream and each item.
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
        """The end of its standard error."""
        self._errors.seek(0)
        return self._errors.read()[-4000:].decode(errors="replace")

    def close(self) -> None:
        """Ends it."""
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
    """`logs --timestamps` -> (time, line); the rest of an overlong line has the time ""."""
    whole = True
    for line in lines:
        stamp, _, rest = line.rstrip(b"\r\n").partition(b" ")
        yield (stamp.decode(errors="replace"), rest) if whole else ("", line.rstrip(b"\r\n"))
        whole = line.endswith(b"\n")


def watch_events(lines: Iterator[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """`get --watch --output-watch-events -o json` -> (ADDED, MODIFIED or DELETED, object)."""
    block = b""
    for line in lines:
        block += line
        # One line, or as indented JSON; which of them depends on kubectl's version.
        if line == b"}\n" or (block.startswith(b'{"') and line.endswith(b"\n")):
            event = json.loads(block)
            block = b""
            yield event["type"], event["object"]
