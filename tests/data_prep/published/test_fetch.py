"""Downloads from a real HTTP server in this process, which misbehaves if a test asks for it."""

import dataclasses
import hashlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Optional

import numpy as np
import pytest

from data_prep import cli
from data_prep.errors import DownloadError, UsageError
from data_prep.published import archives, fetch
from data_prep.published.archives import Archive
from data_prep.published.fetch import Patience

CONTENT = np.random.default_rng(0).bytes(1_000_000)
ETAG = '"one"'
# QUICK retries at once, but waits long for an answer, since the machine may be busy. STALLED gives
# up on a server that sends nothing for 0.7 seconds.
QUICK = Patience(attempts=3, first_delay_secs=0.01, longest_delay_secs=0.02, timeout_secs=60)
STALLED = dataclasses.replace(QUICK, timeout_secs=0.7)

Behaviour = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_GET(self) -> None:  # noqa: N802
        self.server.seen.append((self.path, self.headers.get("Range")))
        self.server.times.append(time.monotonic())
        self.server.conditions.append(self.headers.get("If-Range"))
        behaviour = self.server.script.pop(0) if self.server.script else honest
        behaviour(self)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def start(self) -> int:
        """Returns the position of the first requested byte; 0 if If-Range does not match."""
        asked = self.headers.get("Range")
        if asked is None or self.headers.get("If-Range", ETAG) != ETAG:
            return 0
        return int(asked.split("=")[1].rstrip("-"))

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
        self.conditions: list[Optional[str]] = []
        self.times: list[float] = []
        self.script: list[Behaviour] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"
        self.archive = Archive(
            "cifar-10-python",
            self.url + "cifar-10-python.tar.gz",
            len(CONTENT),
            hashlib.sha256(CONTENT).hexdigest(),
        )


def _range(
    handler: Handler, length: Optional[int] = None, cut: Optional[int] = None, etag: str = ETAG
) -> None:
    start = handler.start()
    body = CONTENT[start:]
    fields = {"ETag": etag}
    if start:
        fields["Content-Range"] = f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"
    declared = len(body) if length is None else length
    sent = body if cut is None else body[:cut]
    handler.reply(206 if start else 200, sent, fields, declared)


def honest(handler: Handler) -> None:
    _range(handler)


def drop(handler: Handler, etag: str = ETAG) -> None:
    _range(handler, cut=300_000, etag=etag)
    handler.close_connection = True
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def stall(handler: Handler) -> None:
    _range(handler, cut=100_000)
    threading.Event().wait(1.5)
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


def page_with_ranges(handler: Handler) -> None:
    """Serves a page as a static server does: with an ETag, and no bytes after its end."""
    page = b"<html>Index of /mirror</html>"
    if handler.headers.get("Range") == f"bytes={len(page)}-":
        handler.reply(416, b"", {"Content-Range": f"bytes */{len(page)}"})
    else:
        handler.reply(200, page, {"ETag": '"page"', "Accept-Ranges": "bytes"})


def ignores_range(handler: Handler) -> None:
    handler.reply(200, CONTENT, {})


def other_range(handler: Handler) -> None:
    place = {"Content-Range": f"bytes 5-{len(CONTENT) - 1}/{len(CONTENT)}"}
    handler.reply(206, CONTENT[5:], place)


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
    patience = STALLED if stall in server.script else QUICK
    return fetch.fetch(server.archive, folder, mirror, patience)


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


def test_attempts_are_counted_in_a_row_without_progress(server: Server, tmp_path: Path) -> None:
    server.script = [drop, status(503), status(503), drop, status(503), status(503)]
    _assert_whole(_fetch(server, tmp_path))
    server.script = [status(503)] * 3
    with pytest.raises(
        DownloadError, match="503 Service Unavailable; gave up after 3 attempts without"
    ):
        _fetch(server, tmp_path / "other")


@pytest.mark.parametrize(
    "behaviour",
    [
        stall,
        says_too_little,
        says_too_much,
        sends_too_much,
        ignores_range,
        wrong_file,
        calls_it_an_encoding,
        status(429, **{"Retry-After": "0"}),
        status(429, **{"Retry-After": "\xb2"}),
        status(500),
        status(301, Location="/moved"),
    ],
)
def test_one_misbehaviour_is_survived(behaviour: Behaviour, server: Server, tmp_path: Path) -> None:
    server.script = [behaviour]
    _assert_whole(_fetch(server, tmp_path))


@pytest.mark.parametrize("behaviour", [ignores_range, other_range, status(416)])
def test_a_resumption_that_goes_wrong_is_survived(
    behaviour: Behaviour, server: Server, tmp_path: Path
) -> None:
    server.script = [drop, behaviour]
    _assert_whole(_fetch(server, tmp_path))


def test_a_file_that_changed_in_between_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz.part").write_bytes(b"\0" * 500_000)
    (tmp_path / "cifar-10-python.tar.gz.part.etag").write_text('"another"')
    _assert_whole(_fetch(server, tmp_path))
    assert server.seen == [("/cifar-10-python.tar.gz", "bytes=500000-")]


def test_a_killed_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz.part").write_bytes(CONTENT[:700_000])
    (tmp_path / "cifar-10-python.tar.gz.part.etag").write_text(ETAG)
    _assert_whole(_fetch(server, tmp_path))
    assert server.seen == [("/cifar-10-python.tar.gz", "bytes=700000-")]


@pytest.mark.parametrize(
    "damage", [b"", b"\xff\xfe", b'\n"one"', b'"one"\r\nX: 1', b"one", b'W/"one"', b'"\xe9"']
)
def test_an_etag_that_is_damaged_on_the_disk_is_left_out(
    damage: bytes, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "cifar-10-python.tar.gz.part").write_bytes(CONTENT[:700_000])
    (tmp_path / "cifar-10-python.tar.gz.part.etag").write_bytes(damage)
    _assert_whole(_fetch(server, tmp_path))
    assert server.seen == [("/cifar-10-python.tar.gz", "bytes=700000-")]
    assert server.conditions == [None]


@pytest.mark.parametrize("etag", ['W/"one"', "one", '"\xe9"'])
def test_only_a_strong_etag_of_the_server_is_a_condition(
    etag: str, server: Server, tmp_path: Path
) -> None:
    server.script = [lambda handler: drop(handler, etag), drop]
    _assert_whole(_fetch(server, tmp_path))
    assert [asked for _, asked in server.seen] == [None, "bytes=300000-", "bytes=600000-"]
    assert server.conditions == [None, None, ETAG]


def test_a_part_that_is_not_of_this_file_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz.part").write_bytes(b"\0" * 2_000_000)
    _assert_whole(_fetch(server, tmp_path))


def test_a_wrong_file_is_never_put_in_place(server: Server, tmp_path: Path) -> None:
    server.script = [wrong_file, wrong_file]
    with pytest.raises(DownloadError, match="serves another file: SHA-256 must be .*, is d29751f2"):
        _fetch(server, tmp_path)
    assert not (tmp_path / "cifar-10-python.tar.gz").exists()
    assert len(server.seen) == 2


def test_a_page_instead_of_the_file_is_refused(server: Server, tmp_path: Path) -> None:
    server.script = [login_page] * 20
    with pytest.raises(DownloadError):
        _fetch(server, tmp_path)
    assert not (tmp_path / "cifar-10-python.tar.gz").exists()


def test_a_page_of_a_server_that_knows_ranges_is_refused(server: Server, tmp_path: Path) -> None:
    server.script = [page_with_ranges] * 20
    with pytest.raises(DownloadError, match="after 3 attempts that lost .*; try another --url"):
        _fetch(server, tmp_path)
    assert [asked for _, asked in server.seen] == [None, "bytes=29-"] * 3


def test_the_client_waits_as_long_as_the_server_asks(server: Server, tmp_path: Path) -> None:
    server.script = [status(503, **{"Retry-After": "1"}), status(429, **{"Retry-After": "soon"})]
    _assert_whole(_fetch(server, tmp_path))
    assert server.times[1] - server.times[0] >= 1.0


@pytest.mark.parametrize("code", [403, 404, 410])
def test_a_refusal_is_final(code: int, server: Server, tmp_path: Path) -> None:
    server.script = [status(code)]
    with pytest.raises(DownloadError, match=f"the server answers {code} .*; try another --url"):
        _fetch(server, tmp_path)
    assert len(server.seen) == 1


def test_redirects_without_end_are_refused(server: Server, tmp_path: Path) -> None:
    server.script = [status(302, Location="/again")] * 100
    with pytest.raises(DownloadError, match="too many redirects"):
        _fetch(server, tmp_path)


def test_a_server_that_is_not_there_is_said(server: Server, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        mirror = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        with pytest.raises(DownloadError, match="cannot connect; gave up after 3 attempts without"):
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
        "/some/file",
        "http://",
        "http://:80/",
        "http://[::1/",
        "http://host:99999/",
        "http://host:0/",
        "http://host:port/",
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


def test_what_a_killed_run_left_beside_the_archive_is_removed(
    server: Server, tmp_path: Path
) -> None:
    path = _fetch(server, tmp_path)
    (tmp_path / "cifar-10-python.tar.gz.part.etag").write_text(ETAG)
    _assert_whole(_fetch(server, tmp_path))
    assert len(server.seen) == 1
    assert path.exists()


def test_two_downloads_of_one_file_are_one_too_many(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "cifar-10-python.tar.gz"
    refused = pytest.raises(DownloadError, match="another run is downloading")
    with fetch._locked_part(target), refused:
        _fetch(server, tmp_path)


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
