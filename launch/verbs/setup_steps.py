"""Prepares one host, step by step; each step does nothing where its work is done already."""

import posixpath
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Optional

from launch.cluster.model import Host
from launch.cluster.tasks import PACKAGES
from launch.connect.setup_client import SetupClient, StepError
from launch.connect.setup_events import Event
from launch.connect.transport import Transport
from launch.connect.tries import Tries
from launch.errors import HostError
from launch.verbs.setup_files import Files

# Step -> the part of a bar that it fills, about as long as it takes.
_PARTS = {"code": 0.05, "venv": 0.75, "kernels": 0.1, "records": 0.1}
_FIRST = "connection"  # and the way into the working directory; it fills nothing
_NO_RECORDS = (
    "none in {folder} here to copy; make them here (python -m data_prep --help), or there: "
    "--source PATH|synthetic"
)


@dataclass(frozen=True)
class Wanted:
    """What every host is to have.

    Attributes:
      code: the code.
      requirements: the name of the requirements file among the code.
      records: the records here; None if there are none.
      folder: the folder of the records on the hosts, relative to `workdir`.
      source: the source to make the records from, there; None to copy them.
    """

    code: Files
    requirements: str
    records: Optional[Files]
    folder: str
    source: Optional[str]


class HostSetup:
    """The preparation of one host.

    Args:
      host: the host.
      wanted: what it is to have.
      show: a function of (part that is done, words) that shows how far it is.
      line: a function that shows a line that stays.
    """

    def __init__(
        self,
        host: Host,
        wanted: Wanted,
        show: Callable[[float, str], None],
        line: Callable[[str], None],
    ) -> None:
        self._host, self._wanted, self._show, self._line = host, wanted, show, line
        self._step = _FIRST
        self._began = 0.0  # the part of the bar that was filled when the step began
        self._is_locking = False  # a folder, which another host may have, too
        self._client: Optional[SetupClient] = None
        self._closing = threading.Event()

    def run(self, transport: Transport) -> None:
        """Prepares the host.

        Raises:
          HostError: a step failed; the message has the host, the step and the last lines.
        """
        try:
            client = self._connect(transport)
            try:
                self._all_steps(client)
            finally:
                client.close()
        except StepError as error:
            last = "".join(f"\n    {line}" for line in error.last)
            raise HostError(f"{self._host.name}: {self._step}: {error}{last}") from None
        except HostError as error:
            raise HostError(f"{self._host.name}: {self._step}: {error}") from None
        except OSError as error:  # of a file here
            words = f"{error.filename}: {error.strerror}"
            raise HostError(f"{self._host.name}: {self._step}: {words}") from None

    def close(self) -> None:
        """Ends the preparation, also if it waits to connect again; `run` then raises HostError."""
        self._closing.set()
        if self._client is not None:
            self._client.close()

    def _connect(self, transport: Transport) -> SetupClient:
        """Connects to the host, and tries again if it is busy."""
        tries = Tries(self._closing)
        while True:
            self._client = client = SetupClient(transport, self._host, self._hear)
            if self._closing.is_set():  # `close` may have come before there was this client
                client.close()
                raise HostError("stopped")
            try:
                client.open()
                return client
            except HostError:
                client.close()
                if not client.is_busy() or not tries.again():
                    raise

    def _all_steps(self, client: SetupClient) -> None:
        self._lock(client, "enter", workdir=self._host.workdir)
        for step, work in (
            ("code", self._code),
            ("venv", self._venv),
            ("kernels", self._kernels),
            ("records", self._records),
        ):
            self._step = step
            self._show(self._began, step)
            self._line(f"{step}: {work(client)}")
            self._began += _PARTS[step]

    def _hear(self, event: Event) -> None:
        if self._is_locking:  # it waits, and says so again and again
            self._is_locking = False
            self._line(f"{self._step}: {event.words}")
        self._part(min(event.done / event.of, 1.0) if event.of else 0.0, event.words)

    def _part(self, part: float, words: str) -> None:
        self._show(self._began + part * _PARTS.get(self._step, 0.0), f"{self._step}: {words}")

    def _lock(self, client: SetupClient, do: str, **order: str) -> None:
        """Lets the host lock a folder; one line says that it waits, or that it cannot."""
        self._is_locking = True
        answer = client.ask(do, **order)
        self._is_locking = False
        if answer.note:
            self._line(f"{self._step}: {answer.note}")

    def _code(self, client: SetupClient) -> str:
        code = self._wanted.code
        # Python files of the packages that only the host has could be imported: they are removed.
        answer = client.ask(
            "compare", folder=".", files=code.digests, places=PACKAGES, ending=".py"
        )
        if answer.others:
            client.ask("remove", folder=".", paths=answer.others)
        return self._send(client, code, ".", answer.missing)

    def _venv(self, client: SetupClient) -> str:
        venv = venv_of(self._host)
        if venv is None:
            return f"{self._host.python} is the host's own Python; its packages stay as they are"
        answer = client.ask("venv", venv=venv, requirements=self._wanted.requirements)
        return f"{venv} {answer.words}"

    def _kernels(self, client: SetupClient) -> str:
        if not self._host.trains:
            return "not needed"
        answer = client.ask("kernels", python=self._host.python)
        return f"{answer.words}: {answer.note}" if answer.note else answer.words

    def _records(self, client: SetupClient) -> str:
        wanted = self._wanted
        if not self._host.trains:
            return "not needed"
        if wanted.source is not None:
            self._lock(client, "hold", folder=wanted.folder)
            words = {"python": self._host.python, "source": wanted.source}
            return client.ask("make_records", folder=wanted.folder, **words).words
        if wanted.records is None:
            return _NO_RECORDS.format(folder=wanted.folder)
        where, files = {"folder": wanted.folder}, wanted.records.digests
        said = "are there"
        if not any(self._compare_records(client, files)):
            return said  # and nothing is written, since the folder may be read-only
        self._lock(client, "hold", **where)
        missing, others, _ = self._compare_records(client, files)
        if missing or others:
            # No reader takes a folder with the mark for a complete one.
            client.ask("mark", **where, done=False)
            client.ask("remove", **where, paths=others)
            said = self._send(client, wanted.records, wanted.folder, missing)
        client.ask("mark", **where, done=True)
        return said

    def _compare_records(
        self, client: SetupClient, files: dict[str, str]
    ) -> tuple[tuple[str, ...], list[str], bool]:
        """Returns which records the host lacks, which it has beside them, and if it has the mark.

        The mark is that of an incomplete folder.
        """
        answer = client.ask(
            "compare", folder=self._wanted.folder, files=files, places=["."], ending=".tfrecords"
        )
        others = [path for path in answer.others if "/" not in path]
        return answer.missing, others, answer.marked

    def _send(self, client: SetupClient, files: Files, folder: str, missing: Iterable[str]) -> str:
        """Copies files, and compares them afterwards; returns what was done, in words."""
        paths = [path for path in missing if path in files.digests]  # whatever the host asks for
        if not paths:
            return "is the same"
        total, sent = files.size(paths) or 1, 0
        for path in paths:
            self._part(sent / total, path)
            client.write(files.folder / path, folder, path, files.digests[path])
            sent += (files.folder / path).stat().st_size
        again = {path: files.digests[path] for path in paths}
        answer = client.ask("compare", folder=folder, files=again, places=[], ending="")
        if answer.missing:
            raise HostError(f"{', '.join(answer.missing[:3])}: not as it is here after the copy")
        return f"{len(paths)} files copied ({sent / (1 << 20):.1f} MiB)"


def venv_of(host: Host) -> Optional[str]:
    """Returns the venv that a host's Python belongs to; None if it is the host's own Python.

    `VENV/bin/python` in the working directory, such as `.venv/bin/python`, belongs to a venv that
    `setup` may make.
    """
    place = posixpath.normpath(host.python)
    folder, name = posixpath.split(place)
    parent, bin_name = posixpath.split(folder)
    if bin_name != "bin" or not name.startswith("python"):
        return None
    workdir = posixpath.normpath(host.workdir)
    is_inside = not posixpath.isabs(parent) or parent.startswith(f"{workdir}/")
    return parent if parent and is_inside and not parent.startswith("..") else None
