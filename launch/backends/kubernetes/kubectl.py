"""Runs kubectl as a child process, and reads what it prints.

The user's own kubeconfig determines how kubectl reaches a cluster, and with which permissions.
What kubectl prints may have any shape: a missing field, or one of another type, is read as an empty
one. Texts are short and printable as UTF-8, since they reach the terminal and the status file.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO, Any, Optional, Union

from launch.agent.processes import die_with
from launch.backends.kubernetes.settings import KubernetesSettings
from launch.backends.tool_errors import last_line, meaning
from launch.errors import HostError

_TIMEOUT_SECS = 60.0
_LONGEST = 1 << 26  # bytes of an answer that are read; a thousand pods have some 12 MB
_LONGEST_TEXT = 2000  # characters of a text


class UnreadableError(HostError):
    """What kubectl printed cannot be read."""


class Kubectl:
    """Runs kubectl for one namespace of one cluster.

    Args:
      context: a context of the kubeconfig; None for the current one.
      namespace: a namespace; None for the context's.
    """

    def __init__(self, context: Optional[str], namespace: Optional[str]) -> None:
        self.context = context
        self.namespace = namespace
        self._running: Optional[subprocess.Popen[bytes]] = None
        self._is_closed = False

    def __call__(
        self, *words: str, given: Optional[str] = None, timeout_secs: float = _TIMEOUT_SECS
    ) -> str:
        """Runs one command to its end and returns its standard output.

        Args:
          *words: the command, without context and namespace.
          given: the text for its standard input; None for an empty one.
          timeout_secs: how long to wait for its end.

        Raises:
          HostError: kubectl is not installed, failed, or did not answer in time; the message says
            why, and the way out.
        """
        try:
            with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
                code = self._run(words, given or "", output, errors, timeout_secs)
                if code:
                    raise HostError(self.explain(_start_of(errors)))
                return _start_of(output)
        except FileNotFoundError as error:
            if error.filename != "kubectl":  # but a folder for its answers
                raise HostError(
                    f"kubectl could not be started: {error.strerror}; name a folder for temporary "
                    "files with TMPDIR"
                ) from None
            raise HostError(
                f"kubectl: {error.strerror}; install it: https://kubernetes.io/docs/tasks/tools"
            ) from None
        except OSError as error:
            raise HostError(f"kubectl could not be started: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise HostError(f"kubectl {words[0]}: no answer within {timeout_secs:g} s") from None

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

    def close(self) -> None:
        """Ends the command that another thread runs, and those that follow."""
        self._is_closed = True
        if self._running is not None:
            _kill(self._running)

    def _run(
        self,
        words: Sequence[str],
        given: str,
        output: IO[bytes],
        errors: IO[bytes],
        timeout_secs: float,
    ) -> int:
        """Runs a command to its end; whatever ends the wait ends its children, too."""
        launcher = os.getpid()
        with subprocess.Popen(
            self.command(*words),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            start_new_session=True,  # so that Ctrl-C reaches only the launcher
            preexec_fn=lambda: die_with(launcher),
        ) as process:
            self._running = process
            try:
                if self._is_closed:
                    _kill(process)
                process.communicate(given.encode(), timeout_secs)
            except BaseException:
                _kill(process)
                raise
            finally:
                self._running = None
            return process.returncode


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kills a command with its children: a program that gets credentials would be left."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def connect(settings: KubernetesSettings) -> Kubectl:
    """Returns kubectl for the current context and namespace, even if these change later.

    Args:
      settings: the settings, whose context and namespace take precedence.

    Raises:
      HostError: kubectl is not installed, or there is no such context.
    """
    asked = Kubectl(settings.context, settings.namespace)
    view = parsed(asked("config", "view", "--minify", "--output=json"), "kubectl config view")
    context = next(iter(sequence(view, "contexts")), None)
    name = text(context, "name")
    if not name:
        raise UnreadableError(
            "kubectl config view names no context; see: kubectl config get-contexts"
        )
    namespace = settings.namespace or text(mapping(context, "context"), "namespace") or "default"
    return Kubectl(name, namespace)


def _start_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_LONGEST).decode(errors="replace")


def parsed(text: Union[str, bytes], what: str) -> Any:
    """Returns the value of a JSON text.

    Args:
      text: the JSON text.
      what: the command that printed it, for the error.

    Raises:
      UnreadableError: it is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        shown = text[:60] if isinstance(text, str) else text[:60].decode(errors="replace")
        raise UnreadableError(f"{what} printed {shown!r}, which is not JSON") from None


def mapping(found: Any, *keys: str) -> dict[str, Any]:
    """Returns the object at the place `keys` of `found`; {} if there is none."""
    value = _at(found, keys)
    return value if isinstance(value, dict) else {}


def sequence(found: Any, *keys: str) -> list[Any]:
    """Returns the list at the place `keys` of `found`; [] if there is none."""
    value = _at(found, keys)
    return value if isinstance(value, list) else []


def text(found: Any, *keys: str) -> str:
    """Returns the text at the place `keys` of `found`, in one line; "" if there is none."""
    value = _at(found, keys)
    if not isinstance(value, str):
        return ""
    return " ".join(value[:_LONGEST_TEXT].encode(errors="replace").decode().split())


def _at(found: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        if not isinstance(found, dict):
            return None
        found = found.get(key)
    return found
