"""Downloads from a real HTTP server in this process, which misbehaves if a test asks for it."""

import dataclasses
import fcntl
import hashlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Optional

import numpy as np
import pytest

from data_prep import cli
from data_prep.errors import DownloadError, OutputError, UsageError
from data_prep.folder import publish
from data_prep.published import archives, fetch
from data_prep.published.archives import Archive

CONTENT = np.random.default_rng(0).bytes(1_000_000)
Behaviour = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_GET(self) -> None:  # noqa: N802
        self.server.seen.append((self.path, self.headers.get("Range")))
        behaviour = self.server.script.pop(0) if self.server.script else honest
        behaviour(self)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def start(self) -> int:
        """Returns the position of the first requested byte."""
        return int(self.headers.get("Range", "bytes=0-").split("=")[1].rstrip("-"))

    def reply(
        self, status: int, body: bytes, fields: Mapping[str, str], length: Optional[int] = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, Optional[str]]] = []
        self.script: list[Behaviour] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"
        self.archive = Archive(
            "cifar-10-python",
            self.url + "cifar-10-python.tar.gz",
            len(CONTENT),
            hashlib.sha256(CONTENT).hexdigest(),
        )


def _range(handler: Handler, length: Optional[int] = None, cut: Optional[int] = None) -> None:
    start = handler.start()
    body = CONTENT[start:]
    fields = {}
    if start:
        fields["Content-Range"] = f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"
    declared = len(body) if length is None else length
    handler.reply(206 if start else 200, body[:cut], fields, declared)


def honest(handler: Handler) -> None:
    _range(handler)


def drop(handler: Handler) -> None:
    _range(handler, cut=300_000)
    handler.close_connection = True
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def stall(handler: Handler) -> None:
    _range(handler, cut=100_000)
    threading.Event().wait(4.0)
    handler.close_connection = True


def says_too_little(handler: Handler) -> None:
    _range(handler, length=200_000, cut=200_000)


def says_too_much(handler: Handler) -> None:
    _range(handler, length=len(CONTENT) + 5_000)
    handler.close_connection = True


def sends_too_much(handler: Handler) -> None:
    handler.reply(200, CONTENT + b"\0" * 500_000, {})


def wrong_file(handler: Handler) -> None:
    handler.reply(200, b"\0" * len(CONTENT), {})


def login_page(handler: Handler) -> None:
    handler.reply(200, b"<html>Please accept the terms of this network</html>", {})


def ignores_range(handler: Handler) -> None:
    handler.reply(200, CONTENT, {})


def status(code: int, **fields: str) -> Behaviour:
    return lambda handler: handler.reply(code, b"", fields)


def calls_it_an_encoding(handler: Handler) -> None:
    handler.reply(200, CONTENT, {"Content-Encoding": "gzip"})


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def _fetch(server: Server, folder: Path, mirror: Optional[str] = None) -> Path:
    return fetch.fetch(server.archive, folder, mirror, 2 if stall in server.script else 60)


def _assert_whole(path: Path) -> None:
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["cifar-10-python.tar.gz"]


def test_a_download_is_put_in_place_and_nothing_beside_it(server: Server, tmp_path: Path) -> None:
    _assert_whole(_fetch(server, tmp_path / "raw"))
    assert server.seen == [("/cifar-10-python.tar.gz", None)]


def test_a_second_run_fetches_nothing(server: Server, tmp_path: Path) -> None:
    _fetch(server, tmp_path)
    _assert_whole(_fetch(server, tmp_path))
    assert len(server.seen) == 1


def test_a_dropped_connection_is_resumed_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.script = [drop, drop, drop]
    _assert_whole(_fetch(server, tmp_path))
    starts = [asked for _, asked in server.seen]
    assert starts == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]


@pytest.mark.parametrize(
    "behaviour",
    [
        stall,
        says_too_little,
        says_too_much,
        sends_too_much,
        ignores_range,
        calls_it_an_encoding,
        status(301, Location="/moved"),
    ],
)
@pytest.mark.parametrize("before", [[], [drop]], ids=["at first", "after a part"])
def test_a_server_that_sends_bytes_is_followed_to_the_end(
    before: list[Behaviour], behaviour: Behaviour, server: Server, tmp_path: Path
) -> None:
    server.script = [*before, behaviour]
    _assert_whole(_fetch(server, tmp_path))


def test_a_killed_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz.part").write_bytes(CONTENT[:700_000])
    _assert_whole(_fetch(server, tmp_path))
    assert server.seen == [("/cifar-10-python.tar.gz", "bytes=700000-")]


@pytest.mark.parametrize(
    ("part", "behaviour", "reason"),
    [
        (
            b"",
            wrong_file,
            "serves another file: SHA-256 must be .*, is d29751f2.*; run again to st",
        ),
        (b"\0" * 9, honest, "serves another file: SHA-256 must be .*; run again to start from the"),
        (b"\0" * 2_000_000, honest, "serves another file"),
        (
            b"\0" * 9,
            status(416),
            "answers 416 Requested Range Not Satisfiable; run again to start f",
        ),
        (b"\0" * 9, status(503), "answers 503 Service Unavailable; 9 of 1,000,000 bytes are kept"),
        (b"", status(404), "answers 404 Not Found; run again to start .*, or try another --url"),
        (b"", login_page, "the server ended the file early; 52 of 1,000,000 bytes are kept"),
        (b"", status(302, Location="/again"), "302 The HTTP server returned a redirect error"),
    ],
)
def test_what_is_not_the_file_is_refused_and_the_next_run_starts_well(
    part: bytes, behaviour: Behaviour, reason: str, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "cifar-10-python.tar.gz.part").write_bytes(part)
    server.script = [behaviour] * 20
    with pytest.raises(DownloadError, match=f"^http://127.*{reason}"):
        _fetch(server, tmp_path)
    assert not (tmp_path / "cifar-10-python.tar.gz").exists()
    server.script = []
    if "kept" not in reason:
        _assert_whole(_fetch(server, tmp_path))


def test_a_server_that_is_not_there_is_said(server: Server, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        mirror = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        with pytest.raises(
            DownloadError, match="Connection refused; run again to start from the first byte"
        ):
            _fetch(server, tmp_path, mirror)


@pytest.mark.parametrize("path", ["mirror/", "mirror/cifar-10-python.tar.gz", "file?id=1"])
def test_a_mirror_is_a_folder_or_a_file(path: str, server: Server, tmp_path: Path) -> None:
    _assert_whole(_fetch(server, tmp_path, server.url + path))
    wanted = path + "cifar-10-python.tar.gz" if path.endswith("/") else path
    assert server.seen[0][0] == f"/{wanted}"


@pytest.mark.parametrize(
    "mirror",
    [
        "ftp://host/",
        "http://",
        "http://[::1/",
        "http://host:99999/",
        "http://host:0/",
    ],
)
def test_a_mirror_must_be_a_url(mirror: str, server: Server, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--url must be https://HOST/"):
        _fetch(server, tmp_path, mirror)


def test_another_file_of_that_name_is_kept(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(b"mine")
    with pytest.raises(DownloadError, match="is there, but is not the published archive"):
        _fetch(server, tmp_path)
    assert path.read_bytes() == b"mine"
    assert list(tmp_path.iterdir()) == [path]


def test_an_archive_in_a_folder_that_cannot_be_written_to_is_taken(
    server: Server, small_disk: Path
) -> None:
    archive = dataclasses.replace(
        server.archive, bytes=5, sha256=hashlib.sha256(b"whole").hexdigest()
    )
    (small_disk / archive.name).write_bytes(b"whole")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert fetch.fetch(archive, small_disk) == small_disk / archive.name
    assert server.seen == []


def test_two_downloads_of_one_file_are_one_too_many(server: Server, tmp_path: Path) -> None:
    with publish.open_own(tmp_path / "cifar-10-python.tar.gz.part") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        with pytest.raises(DownloadError, match="another run is downloading"):
            _fetch(server, tmp_path)


def test_a_link_in_place_of_the_part_is_not_written_through(server: Server, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "cifar-10-python.tar.gz.part").symlink_to("mine")
    with pytest.raises(OutputError, match=r"\.part: is a link, and must be a file; move it away"):
        _fetch(server, tmp_path)
    assert (tmp_path / "mine").read_text() == "mine"


def test_the_command_reports_progress_and_what_comes_next(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(archives.ARCHIVES, "python", server.archive)
    assert cli.main(["download", "--out", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert "SHA-256 as published" in output.out
    assert "Next: python -m data_prep --source" in output.out
    assert "100 % of 1 MB" in output.err
    server.script = [status(404)]
    assert cli.main(["download", "--out", str(tmp_path / "b"), "--url", server.url]) == 1
    assert capsys.readouterr().err.startswith("error: http://127.0.0.1")


def test_a_full_disk_keeps_what_was_fetched_and_says_how_much_an_archive_takes(
    server: Server,
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(archives.ARCHIVES, "python", server.archive)
    assert cli.main(["download", "--out", str(small_disk)]) == 1
    error = capsys.readouterr().err
    assert error.endswith(
        "the disk is full; an archive takes 171 MB; free some, then run again to resume\n"
    )
    (part,) = small_disk.glob("*.part")
    assert part.stat().st_size > 50_000


def test_the_published_archives_are_fetched_over_https_and_checked_by_sha256() -> None:
    for archive in archives.ARCHIVES.values():
        assert archive.url.startswith("https://www.cs.toronto.edu/~kriz/cifar-10-")
        assert len(archive.sha256) == 64
