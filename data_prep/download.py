"""Fetches a published archive: resumes, checks, and only then puts the file in place.

NAME.part collects the bytes, so that a download that was cut off continues where it stopped. The
published size and SHA-256 are known, so the server is not trusted: the lengths that it states are
ignored, bytes beyond the published size are dropped, and the digest decides.
"""

import http.client
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Optional
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from cifar10_program.paths import sync
from cifar10_program.streams import log_error
from data_prep.errors import DownloadError, UsageError
from data_prep.folder import publish
from data_prep.sources.members import file_sha256

_PUBLISHED = "https://www.cs.toronto.edu/~kriz/"
_BLOCK = 1 << 18
_TIMEOUT_SECS = 30.0  # for the connection, and for the next bytes
# What an address, or a connection, leads to that does not work. A full disk is none of these.
_UNREACHABLE = (URLError, http.client.HTTPException, ValueError, OverflowError)
_BROKEN = (*_UNREACHABLE, ConnectionError, socket.timeout, ssl.SSLError)


@dataclass(frozen=True)
class Archive:
    """An archive that https://www.cs.toronto.edu/~kriz/cifar.html publishes.

    Attributes:
      name: name of the file.
      bytes: size of the file in bytes.
      sha256: SHA-256 of the file, in hex.
    """

    name: str
    bytes: int
    sha256: str


ARCHIVES = {
    "python": Archive(
        "cifar-10-python.tar.gz",
        170_498_071,
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    "binary": Archive(
        "cifar-10-binary.tar.gz",
        170_052_171,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
}


def fetch(archive: Archive, folder: Path, mirror: Optional[str] = None) -> Path:
    """Fetches the archive into `folder`, unless it is already there, and returns its path.

    Args:
      archive: the archive to fetch.
      folder: folder for the archive; created if missing.
      mirror: URL of the file, or of its folder with a slash at the end; None: the published URL.

    Raises:
      DownloadError: the archive cannot be fetched, or the file that the server sends or the folder
        has is not the published one.
      OutputError: another run is fetching it.
      UsageError: `mirror` is not an http or https URL.
    """
    url = _PUBLISHED if mirror is None else mirror
    if not url.startswith(("https://", "http://")):
        raise UsageError(f"--url must be https://HOST/... or http://HOST/..., got {mirror!r}")
    url += archive.name if url.endswith("/") else ""
    target = folder / archive.name
    if target.exists():  # The folder may be one that this user only reads.
        digest = file_sha256(target)
        if digest != archive.sha256:
            raise DownloadError(
                f"{target}: is there, but is not the published archive (SHA-256 {digest}); "
                "move it away and run again"
            )
        return target
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with publish.locked(part) as file:
        try:
            _append(archive, url, file)
            reason = "the server ended the file early"
        except HTTPError as error:
            reason = f"the server answers {error.code} {error.reason}"
        except _BROKEN as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        size = file.seek(0, os.SEEK_END)
        if size < archive.bytes:
            raise DownloadError(
                f"{url}: {reason}; {size:,} of {archive.bytes:,} bytes are kept: run again to "
                f"resume, remove {part} to start anew, or try another --url"
            )
        digest = file_sha256(part)
        if digest != archive.sha256:
            file.truncate(0)
            raise DownloadError(
                f"{url}: serves another file: SHA-256 must be {archive.sha256}, is {digest}; run "
                "again to start from the first byte, or try another --url"
            )
        sync(part)
        os.replace(part, target)
        sync(folder)
    return target


def _append(archive: Archive, url: str, file: IO[Any]) -> None:
    """Appends the bytes of an archive that a file lacks, as far as the server sends them."""
    start = file.seek(0, os.SEEK_END)
    request = Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    with urlopen(request, timeout=_TIMEOUT_SECS) as response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            file.truncate(0)
            start = 0
        while block := response.read1(min(_BLOCK, archive.bytes - start)):
            file.write(block)
            tenths = 10 * start // archive.bytes
            start += len(block)
            if 10 * start // archive.bytes > tenths:
                percent = 100 * start // archive.bytes
                log_error(f"{archive.name}: {percent} % of {archive.bytes // 1_000_000} MB")
