"""Small archives that would keep the reader busy for long, or fill the memory."""

import io
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

import pytest

from data_prep import cli
from data_prep.sources import member

FOLDER = tarfile.TarInfo("train")
FOLDER.type = tarfile.DIRTYPE
BLOCK = FOLDER.tobuf(tarfile.USTAR_FORMAT)


def _gzip_of(block: bytes, times: int, path: Path) -> Path:
    """Writes a block many times; gzip makes a few kilobytes of it."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    with path.open("wb") as file:
        for _ in range(times // 4096):
            file.write(packer.compress(block * 4096))
        file.write(packer.flush())
    return path


def _refusal(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Converts an archive, which is refused; returns the line on standard error."""
    assert cli.main(["--source", str(path), "--out", str(path.parent / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


class _Counting(io.FileIO):
    bytes_read = 0

    def read(self, size: int = -1) -> bytes:  # type: ignore[override]
        data = super().read(size)
        _Counting.bytes_read += len(data or b"")
        return data or b""


def _count_reads(monkeypatch: pytest.MonkeyPatch) -> type[_Counting]:
    def opened(path: Path, mode: str) -> IO[bytes]:
        return _Counting(path, mode)

    monkeypatch.setattr(_Counting, "bytes_read", 0)
    monkeypatch.setattr(Path, "open", opened)
    return _Counting


def test_a_tar_of_two_million_folders_is_refused_after_a_bounded_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(member, "MAX_MEMBERS", 2_000)
    path = tmp_path / "folders.tar"
    with path.open("wb") as file:
        file.truncate(2_000_000 * 512)
        file.seek(0)
        file.write(BLOCK * 4_000)
    packed = _gzip_of(BLOCK, 2_000_000, tmp_path / "folders.tar.gz")
    assert packed.stat().st_size < 10_000_000
    words = "oversized: more than 2,000 files and folders; the published archives have 8"
    assert words in _refusal(packed, capsys)
    monkeypatch.setattr("data_prep.sources.detect.file_sha256", lambda path: "")
    reads = _count_reads(monkeypatch)
    assert words in _refusal(path, capsys)
    assert reads.bytes_read < 2_100 * 512


def test_a_zip_of_too_many_folders_is_refused_before_its_entries_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "folders.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(300):
            archive.writestr(f"{number}/", b"")
    monkeypatch.setattr(member, "MAX_MEMBERS", 299)
    monkeypatch.setattr(zipfile, "ZipInfo", None)  # Making one would fail.
    assert "oversized: more than 299 files and folders" in _refusal(path, capsys)


def test_the_folders_of_a_folder_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(51):
        (tmp_path / "tree" / str(number)).mkdir(parents=True)
    monkeypatch.setattr(member, "MAX_MEMBERS", 50)
    assert "oversized: more than 50 files and folders" in _refusal(tmp_path / "tree", capsys)


@pytest.mark.parametrize(
    "kind", [tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME]
)
def test_headers_of_one_member_are_bounded(
    kind: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gigabyte of them takes a megabyte in gzip, and many times as much in memory."""
    info = tarfile.TarInfo("train/cat/0.png")
    info.type, info.size = kind, 0 if kind == tarfile.GNUTYPE_SPARSE else 1 << 20
    header = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    if kind == tarfile.GNUTYPE_SPARSE:
        header[482] = 1  # Another block of the map of the file follows.
        header[148:156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 8 * 32)
    path = tmp_path / "headers.tar.gz"
    following = b"00000000001\0" * 42 + b"\1" + b"\0" * 7
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    data = packer.compress(bytes(header) + following * 4096) + packer.flush()
    path.write_bytes(data)
    assert "oversized: it unpacks to more than the bounds" in _refusal(path, capsys)


def test_a_header_of_one_long_number_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In Python before 3.11.10, tarfile searches it for hours if it has a megabyte."""
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, 60_000
    path = tmp_path / "pax.tar"
    path.write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + b"1" * 60_416 + BLOCK + b"\0" * 1024)
    assert "a number in a header has more than 255 digits" in _refusal(path, capsys)
