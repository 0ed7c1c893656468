"""Fetches a published archive: resumes, checks, and only then puts the file in place.

NAME.part collects the bytes, so that a download that was cut off continues where it stopped. The
published size and SHA-256 are known, so the server is not trusted: the lengths that it states are
ignored, bytes beyond the published size are dropped, and the digest decides.
"""

import fcntl
import http.client
import os
import socket
import ssl
from pathlib import Path
from typing import BinaryIO, Optional
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from cifar10_program.streams import complain
from data_prep.errors import DownloadError, UsageError
from data_prep.folder import publish
from data_prep.published.archives import Archive
from data_prep.sources.detect import file_sha256

_BLOCK = 1 << 18
# A full disk is none of these.
_BROKEN = (URLError, ConnectionError, socket.timeout, ssl.SSLError, http.client.HTTPException)
_TIMEOUT_SECS = 30.0  # for the connection, and for the next bytes


def fetch(
    archive: Archive,
    folder: Path,
    mirror: Optional[str] = None,
    timeout_secs: float = _TIMEOUT_SECS,
) -> Path:
    """Fetches the archive into `folder`, unless it is already there, and returns its path.

    Args:
      archive: the archive to fetch.
      folder: folder for the archive; created if missing.
      mirror: URL of the file, or of its folder with a slash at the end; None: the published URL.
      timeout_secs: seconds to wait for the connection, and for the next bytes.

    Raises:
      DownloadError: the archive cannot be fetched, another run is fetching it, or the file that the
        server sends or the folder has is not the published one.
      OutputError: `folder` cannot be a folder.
      UsageError: `mirror` is not an http or https URL.
    """
    url = _address(archive, mirror)
    target = folder / archive.name
    publish.make_folder(folder)
    if target.exists():  # The folder may be one that this user only reads.
        digest = file_sha256(target)
        if digest != archive.sha256:
            raise DownloadError(
                f"{target}: is there, but is not the published archive (SHA-256 {digest}); "
                "move it away and run again"
            )
        return target
    part = target.with_name(target.name + ".part")
    with publish.open_own(part) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DownloadError(f"{part}: another run is downloading it; wait for it") from None
        _download(archive, url, file, timeout_secs)
        digest = file_sha256(part)
        if digest != archive.sha256:
            file.truncate(0)
            raise DownloadError(
                f"{url}: serves another file: SHA-256 must be {archive.sha256}, is {digest}; run "
                "again to start from the first byte, or try another --url"
            )
        publish.sync(part)
        os.replace(part, target)
        publish.sync(folder)
    return target


def _address(archive: Archive, mirror: Optional[str]) -> str:
    if mirror is None:
        return archive.url
    try:
        parts = urlsplit(mirror)
        is_http = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # It has a bracket too few, or a port that is no number up to 65535.
        is_http = False
    if not is_http:
        raise UsageError(f"--url must be https://HOST/... or http://HOST/..., got {mirror!r}")
    return mirror + archive.name if mirror.endswith("/") else mirror


def _download(archive: Archive, url: str, file: BinaryIO, timeout_secs: float) -> None:
    """Appends the missing bytes to a file; resumes as long as new ones arrive.

    Raises:
      DownloadError: an attempt brought nothing new.
    """
    most = file.seek(0, os.SEEK_END)
    while most < archive.bytes:
        reason = "the server ended the file early"
        try:
            _attempt(archive, url, file, timeout_secs)
        except HTTPError as error:
            reason = f"the server answers {error.code} {error.reason}"
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                file.truncate(0)  # It has fewer bytes, so these are of another file.
        except _BROKEN as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        size = file.seek(0, os.SEEK_END)
        if size <= most:
            kept = f"{size:,} of {archive.bytes:,} bytes are kept: run again to resume"
            way = kept if size else "run again to start from the first byte"
            raise DownloadError(f"{url}: {reason}; {way}, or try another --url")
        most = size


def _attempt(archive: Archive, url: str, file: BinaryIO, timeout_secs: float) -> None:
    start = file.seek(0, os.SEEK_END)
    request = Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    with urlopen(request, timeout=timeout_secs) as response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            file.truncate(0)
            start = 0
        while block := response.read1(min(_BLOCK, archive.bytes - start)):
            file.write(block)
            tenths = 10 * start // archive.bytes
            start += len(block)
            if 10 * start // archive.bytes > tenths:
                percent = 10 * start // archive.bytes * 10
                complain(f"{archive.name}: {percent} % of {archive.bytes / 1e6:,.0f} MB")
