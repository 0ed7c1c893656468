"""Downloads from a real HTTP server in this process, which misbehaves if a test asks for it."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Optional, Union

import numpy as np
import pytest

from data_prep import cli, download
from data_prep.download import Archive
from data_prep.errors import DownloadError, UsageError

CONTENT = np.random.default_rng(0).bytes(1_000_000)
ARCHIVE = Archive("cifar-10-python.tar.gz", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


class Handler(BaseHTTPRequestHandler):
    """Answers as the server's script says: a status and a body, or a way to send the file."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_GET(self) -> None:  # noqa: N802
        asked = self.headers.get("Range")
        self.server.seen.append((self.path, asked))
        way = self.server.script.pop(0) if self.server.script else "honest"
        if isinstance(way, tuple):
            status, body = way
            declared = len(body)
        else:
            start = int(asked[6:-1]) if asked else 0
            status, body = (206 if start else 200), CONTENT[start:]
            declared = len(body) + (5_000 if way == "too much" else 0)
            if way in ("drop", "stall", "too little"):
                body = body[:300_000]
                declared = len(body) if way == "too little" else declared
        self.send_response(status)
        self.send_header("Content-Length", str(declared))
        self.send_header("Content-Encoding", "gzip")  # It is the file's, not that of the transfer.
        if status in (301, 302):
            self.send_header("Location", "/again")
        self.end_headers()
        self.wfile.write(body)
        if way == "stall":
            self.rfile.read(1)  # until the client gives up
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, Optional[str]]] = []
        self.script: list[Union[str, tuple[int, bytes]]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"


@pytest.fixture(scope="module")
def shared_server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def server(shared_server: Server) -> Server:
    shared_server.seen, shared_server.script = [], []
    return shared_server


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "cifar-10-python.tar.gz.part"


def _fetch(server: Server, folder: Path) -> Path:
    return download.fetch(ARCHIVE, folder, server.url)


def _assert_whole(path: Path) -> None:
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["cifar-10-python.tar.gz"]


def test_a_download_is_put_in_place_once_and_nothing_beside_it(server, tmp_path):
    for _ in range(2):
        _assert_whole(_fetch(server, tmp_path / "raw"))
    assert server.seen == [("/cifar-10-python.tar.gz", None)]


@pytest.mark.parametrize("way", ["drop", "stall", "too little"])
def test_a_download_that_was_cut_off_goes_on_where_it_stopped(way, server, part, monkeypatch):
    monkeypatch.setattr(download, "_TIMEOUT_SECS", 0.2)
    server.script = [way]
    with pytest.raises(DownloadError, match=r"^http://127.*; 300,000 of 1,000,000 bytes are kept"):
        _fetch(server, part.parent)
    _assert_whole(_fetch(server, part.parent))
    assert [asked for _, asked in server.seen] == [None, "bytes=300000-"]


@pytest.mark.parametrize(
    "reply", ["too much", (200, CONTENT + b"more"), (200, CONTENT), (301, b"")]
)
@pytest.mark.parametrize("before", [b"", CONTENT[:300_000]], ids=["at first", "after a part"])
def test_a_server_that_sends_the_bytes_is_believed_nothing_else(before, reply, server, part):
    part.write_bytes(before)
    server.script = [reply]
    _assert_whole(_fetch(server, part.parent))


@pytest.mark.parametrize(
    ("before", "reply", "reason"),
    [
        (b"", (200, bytes(10**6)), "another file: SHA-256 must be .*, is d29751f2.*; run again"),
        (b"\0" * 9, "honest", "another file: SHA-256 must be .*; run again to start from the"),
        (b"\0" * 2_000_000, "honest", "serves another file: SHA-256"),
        (b"\0" * 9, (416, b""), "answers 416 Requested Range Not Satisfiable; 9 of .* remove /.*"),
        (b"\0" * 9, (503, b""), "answers 503 Service Unavailable; 9 of 1,000,000 bytes are kept"),
        (b"", (404, b""), "answers 404 Not Found; 0 of 1,000,000 .*, or try another --url"),
        (b"", (200, b"<html>"), "the server ended the file early; 6 of 1,000,000 bytes are kept"),
        (b"", (302, b""), "302 The HTTP server returned a redirect error"),
    ],
)
def test_what_is_not_the_file_is_refused(before, reply, reason, server, part):
    part.write_bytes(before)
    server.script = [reply] * 20
    with pytest.raises(DownloadError, match=f"^http://127.*{reason}"):
        _fetch(server, part.parent)
    assert [path.name for path in part.parent.iterdir()] == [part.name]
    server.script = []
    if "another file" in reason:
        _assert_whole(_fetch(server, part.parent))


@pytest.mark.parametrize("path", ["mirror/", "mirror/cifar-10-python.tar.gz", "file?id=1"])
def test_a_mirror_is_a_folder_or_a_file(path, server, tmp_path):
    _assert_whole(download.fetch(ARCHIVE, tmp_path, server.url + path))
    wanted = path + "cifar-10-python.tar.gz" if path.endswith("/") else path
    assert server.seen[0][0] == f"/{wanted}"


def test_a_mirror_must_be_a_url(tmp_path):
    with pytest.raises(UsageError, match="--url must be https://HOST/.*, got 'ftp://host/'"):
        download.fetch(ARCHIVE, tmp_path, "ftp://host/")


def test_another_file_of_that_name_is_kept(server, tmp_path):
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(b"mine")
    with pytest.raises(DownloadError, match="is there, but is not the published archive"):
        _fetch(server, tmp_path)
    assert path.read_bytes() == b"mine"
    assert list(tmp_path.iterdir()) == [path]


def test_the_command_reports_progress_and_what_comes_next(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(download.ARCHIVES, "python", ARCHIVE)
    words = ["download", "--url", server.url, "--out"]
    assert cli.main([*words, str(tmp_path / "my archives")]) == 0
    output = capsys.readouterr()
    place = f"'{tmp_path}/my archives/cifar-10-python.tar.gz'"
    assert "SHA-256 as published" in output.out
    assert output.out.endswith(f"Next: python -m data_prep --source {place} --out data\n")
    assert "100 % of 1 MB" in output.err
    server.script = [(404, b"")]
    assert cli.main([*words, str(tmp_path / "b")]) == 1
    assert capsys.readouterr().err.startswith("error: http://127.0.0.1")
