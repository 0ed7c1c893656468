"""Fetches a published archive: resumes, retries, checks, and only then puts the file in place.

NAME.part collects the bytes, and NAME.part.etag keeps the server's ETag, so that a killed download
continues where it stopped. The published size and SHA-256 are known, so the server is not trusted:
the lengths that it states are ignored, bytes beyond the published size are dropped, and the digest
decides.
"""

import fcntl
import os
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Optional
from urllib.parse import urlsplit

import requests
import urllib3

from data_prep.errors import DownloadError, UsageError
from data_prep.folder import publish
from data_prep.published.archives import Archive
from data_prep.published.meter import Meter
from data_prep.sources.detect import file_sha256

_BLOCK = 1 << 18
_MAX_WRONG_FILES = 2
# RFC 9110, section 8.8.3, in ASCII. A weak ETag, W/"...", does not promise the same bytes.
_STRONG_ETAG = re.compile(r'"[!#-~]*"')
# Status codes of temporary errors, after which the download is tried again.
_PASSING = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Patience:
    """How long a download keeps trying.

    Attributes:
      attempts: number of attempts in a row without a new byte after which the download fails, and
        number of attempts, in a row or not, that lose bytes.
      first_delay_secs: delay after the first failed attempt, in seconds.
      longest_delay_secs: upper limit of the delay, in seconds, before the jitter.
      timeout_secs: seconds to wait for the connection, and for the next bytes.
    """

    attempts: int = 6
    first_delay_secs: float = 1.0
    longest_delay_secs: float = 30.0
    timeout_secs: float = 30.0

    def delay_secs(self, failures: int) -> float:
        """Returns the delay after some failures in a row: it doubles, and has a random jitter."""
        delay = min(self.first_delay_secs * 2.0 ** (failures - 1), self.longest_delay_secs)
        return delay * random.uniform(0.75, 1.25)


class _Retry(Exception):
    """An attempt has ended early; the message gives the reason.

    Attributes:
      wait_secs: seconds that the server asked to wait; 0 if it did not.
    """

    def __init__(self, reason: str, wait_secs: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_secs = wait_secs


def fetch(
    archive: Archive,
    folder: Path,
    mirror: Optional[str] = None,
    patience: Optional[Patience] = None,
) -> Path:
    """Fetches the archive into `folder`, unless it is already there, and returns its path.

    Args:
      archive: the archive to fetch.
      folder: folder for the archive; created if missing.
      mirror: URL of the file, or of its folder with a slash at the end; None: the published URL.
      patience: how long to keep trying; None: the defaults.

    Raises:
      DownloadError: the archive cannot be fetched, another run is fetching it, or the file that the
        server sends or the folder has is not the published one.
      UsageError: `mirror` is not an http or https URL.
    """
    target = folder / archive.name
    url = _address(archive, mirror)
    folder.mkdir(parents=True, exist_ok=True)
    if target.exists():  # The folder may be one that this user only reads.
        _check_present(target, archive)
        if not any(leftover.exists() for leftover in _leftovers(target)):
            return target
    with _locked_part(target) as part:
        if not target.exists():
            _Fetcher(archive, url, part, patience or Patience()).run()
            publish.sync(part)
            os.replace(part, target)
            publish.sync(folder)
        for leftover in _leftovers(target):
            leftover.unlink(missing_ok=True)
    return target


def _address(archive: Archive, mirror: Optional[str]) -> str:
    if mirror is None:
        return archive.url
    if not _is_http_url(mirror):
        raise UsageError(f"--url must be https://HOST/... or http://HOST/..., got {mirror!r}")
    return mirror + archive.name if mirror.endswith("/") else mirror


def _is_http_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # It has a bracket too few, or a port that is no number up to 65535.
        return False
    return parts.scheme in ("https", "http") and bool(parts.hostname) and port != 0


def _check_present(target: Path, archive: Archive) -> None:
    digest = file_sha256(target)
    if digest != archive.sha256:
        raise DownloadError(
            f"{target}: is there, but is not the published archive (SHA-256 {digest}); "
            "move it away and run again"
        )


def _part_path(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def _etag_path(part: Path) -> Path:
    return part.with_name(part.name + ".etag")


def _leftovers(target: Path) -> tuple[Path, Path]:
    part = _part_path(target)
    return part, _etag_path(part)


@contextmanager
def _locked_part(target: Path) -> Iterator[Path]:
    part = _part_path(target)
    with part.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DownloadError(f"{part}: another run is downloading it; wait for it") from None
        yield part


class _Fetcher:
    """One download, with as many attempts as it takes."""

    def __init__(self, archive: Archive, url: str, part: Path, patience: Patience) -> None:
        self._archive, self._url, self._part, self._patience = archive, url, part, patience

    def run(self) -> None:
        """Fills the part file with the bytes of the archive.

        Raises:
          DownloadError: there were too many attempts without a new byte, too many that lost bytes,
            or a final error, or the server has another file.
        """
        failures = losses = wrong_files = 0
        meter = Meter(self._archive.name, self._archive.bytes)
        with meter, requests.Session() as session:
            while True:
                before = self._size()
                try:
                    if before < self._archive.bytes:
                        self._attempt(session, meter)
                    wrong = self._wrong_digest()
                except _Retry as error:
                    failures = 0 if self._size() > before else failures + 1
                    losses += self._size() < before
                    self._check_losses(error, losses)
                    self._wait(error, failures, meter)
                    continue
                if wrong is None:
                    return
                self._discard()
                wrong_files += 1
                if wrong_files == _MAX_WRONG_FILES:
                    raise DownloadError(
                        f"{self._url}: serves another file: SHA-256 must be "
                        f"{self._archive.sha256}, is {wrong}; try another --url"
                    )
                meter.say("the SHA-256 is wrong; starting again from the first byte")

    def _check_losses(self, error: _Retry, losses: int) -> None:
        # A page in place of the file arrives and is thrown away in turn, each time with new bytes.
        if losses >= self._patience.attempts:
            raise DownloadError(
                f"{self._url}: {error}; gave up after {losses} attempts that lost what was "
                "fetched; try another --url"
            )

    def _wait(self, error: _Retry, failures: int, meter: Meter) -> None:
        if failures >= self._patience.attempts:
            raise DownloadError(
                f"{self._url}: {error}; gave up after {failures} attempts without a new "
                f"byte; {self._size():,} of {self._archive.bytes:,} bytes are kept: run again"
            )
        delay = max(self._patience.delay_secs(max(failures, 1)), error.wait_secs)
        meter.say(f"{error}; retrying in {delay:.1f} s")
        time.sleep(delay)

    def _size(self) -> int:
        return self._part.stat().st_size

    def _discard(self) -> None:
        os.truncate(self._part, 0)
        _etag_path(self._part).unlink(missing_ok=True)

    def _wrong_digest(self) -> Optional[str]:
        """Returns the SHA-256 of the complete part file if it is wrong; None if it is right.

        Raises:
          _Retry: the part file is not complete.
        """
        if self._size() < self._archive.bytes:
            raise _Retry("the server ended the file early")
        digest = file_sha256(self._part)
        return None if digest == self._archive.sha256 else digest

    def _attempt(self, session: requests.Session, meter: Meter) -> None:
        """Requests the missing bytes and appends those that arrive."""
        try:
            with session.get(
                self._url, headers=self._headers(), stream=True, timeout=self._patience.timeout_secs
            ) as response:
                self._check_status(response)
                with self._part.open("r+b") as file:
                    file.seek(self._start(response))
                    file.truncate()
                    self._copy(response, file, meter)
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
            raise UsageError(f"{self._url}: not a URL that can be fetched: {error}") from error
        except requests.exceptions.TooManyRedirects as error:
            raise DownloadError(f"{self._url}: too many redirects") from error
        except requests.exceptions.SSLError as error:
            raise DownloadError(f"{self._url}: its certificate is not trusted: {error}") from error
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise _Retry(_short(error)) from error

    def _headers(self) -> dict[str, str]:
        # "identity" asks for the archive itself, not for a compressed transfer of it.
        headers = {"Accept-Encoding": "identity"}
        size, etag_path = self._size(), _etag_path(self._part)
        if size:
            headers["Range"] = f"bytes={size}-"
            etag = etag_path.read_text("latin-1") if etag_path.exists() else ""
            if _STRONG_ETAG.fullmatch(etag):  # What a disk or a person damaged is left out.
                headers["If-Range"] = etag
        return headers

    def _check_status(self, response: requests.Response) -> None:
        status = response.status_code
        if status == 416:
            self._discard()
            raise _Retry("the server has no such range; starting again from the first byte")
        if status in _PASSING:
            asked = response.headers.get("Retry-After", "")
            wait = min(float(asked), 60.0) if asked.isdecimal() else 0.0
            raise _Retry(f"the server answers {status} {response.reason}", wait)
        if status not in (200, 206):
            raise DownloadError(
                f"{self._url}: the server answers {status} {response.reason}; try another --url"
            )

    def _start(self, response: requests.Response) -> int:
        """Returns the position in the file at which the answer begins, and keeps its ETag."""
        etag = response.headers.get("ETag", "")
        if _STRONG_ETAG.fullmatch(etag):
            _etag_path(self._part).write_text(etag)
        else:
            _etag_path(self._part).unlink(missing_ok=True)
        if response.status_code == 200:
            return 0
        size = self._size()
        if not response.headers.get("Content-Range", "").startswith(f"bytes {size}-"):
            self._discard()
            raise _Retry("the server sent another range than asked for")
        return size

    def _copy(self, response: requests.Response, file: BinaryIO, meter: Meter) -> None:
        # Some servers call a .gz file gzip-encoded: requests would unpack it, this does not.
        for block in response.raw.stream(_BLOCK, decode_content=False):
            room = self._archive.bytes - file.tell()
            file.write(block[:room])
            meter.update(file.tell())
            if len(block) >= room:
                return  # Any further bytes cannot belong to the file.


def _short(error: Exception) -> str:
    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)):
        return "the server does not answer in time"
    if isinstance(error, requests.exceptions.ConnectionError) and "Max retries" in str(error):
        return "cannot connect"
    return "the connection broke"
