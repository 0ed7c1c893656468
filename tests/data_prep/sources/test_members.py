"""Sources that are damaged, of another kind, or would keep the reader busy or fill the memory."""

import gzip
import os
import tarfile
import zipfile

import pytest

from data_prep.errors import SourceError
from data_prep.sources import members
from tests.data_prep import made
from tests.failing_disk import flip_bit

FOLDER = tarfile.TarInfo("train")
FOLDER.type = tarfile.DIRTYPE
BLOCK = FOLDER.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz", "zip"])
def test_an_archive_cut_anywhere_is_refused(mode, python_source, tmp_path):
    whole = made.packed(mode, python_source).read_bytes()
    for length in (3, 300, len(whole) // 3, len(whole) * 9 // 10):
        cut = tmp_path / "cut"
        cut.write_bytes(whole[:length])
        with pytest.raises(SourceError, match=r"\A[^\n]+\Z"):
            made.load(cut)


@pytest.mark.parametrize("change", ["cut", "damaged"])
def test_a_tar_that_ends_before_its_end_is_refused(change, tree):
    path = made.packed("w", tree)
    with tarfile.open(path) as archive:
        last = archive.getmembers()[-1]
    content = path.read_bytes()
    # tarfile takes both for the end of the archive.
    path.write_bytes(content[: last.offset] + (b"" if change == "cut" else b"\1" * 10_240))
    with pytest.raises(SourceError, match="damaged or truncated: .*the end of the archive is miss"):
        made.load(path)


def test_an_archive_writes_no_file(tmp_path):
    path = tmp_path / "archive" / "evil.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as zipped:
        for name in ("../evil/test/cat/0.png", f"{tmp_path}/evil/test/cat/0.png"):
            zipped.writestr(name, made.png())
    assert len(made.load(path).eval) == 1  # The other one leads out of the archive.
    assert os.listdir(tmp_path) == ["archive"]


def test_links_in_an_archive_are_refused(tmp_path):
    path = tmp_path / "link.tar"
    info = tarfile.TarInfo("train/cat/0.png")
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(path, "w") as archive:
        archive.addfile(info)
    with pytest.raises(SourceError, match="is a link or device"):
        made.load(path)


def test_a_folder_of_something_else_says_what_is_looked_for(tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(SourceError, match="holds neither data_batch_1 .* nor train/CLASS"):
        made.load(tmp_path)


def test_hidden_links_to_nowhere_are_skipped_and_others_are_named(tree):
    (tree / "train" / "cat" / ".#0000.png").symlink_to("me@host.1")  # as Emacs locks a file
    (tree / "train" / "cat" / ".pipe.png").symlink_to("/dev/zero")
    assert len(made.load(tree).train) == 50
    (tree / "train" / "cat" / "x.png").symlink_to("nowhere")
    with pytest.raises(SourceError, match=r"^train/cat/x\.png: cannot be read: No such file or"):
        made.load(tree)


def test_linked_folders_are_followed_and_pipes_are_not_waited_for(image_source, tree):
    linked = tree.parent / "linked"
    linked.mkdir()
    (linked / "test").symlink_to(image_source / "test")
    (linked / "train").symlink_to(tree / "train")
    assert len(made.load(linked).train) == 50
    os.mkfifo(tree / "train" / "cat" / "pipe.png")
    with pytest.raises(SourceError, match=r"train/cat/pipe\.png: is not a regular file"):
        made.load(linked)


def test_a_tar_of_two_million_folders_is_refused_after_a_bounded_part(tmp_path, monkeypatch):
    monkeypatch.setattr(members, "MAX_MEMBERS", 2_000)
    path = tmp_path / "folders.tar.gz"
    path.write_bytes(gzip.compress(BLOCK * 20_000) * 100)
    assert path.stat().st_size < 10_000_000
    counted: list[int] = []
    frombuf = members._StrictInfo.frombuf.__func__

    def count(*arguments: object) -> object:
        counted.append(1)
        return frombuf(*arguments)

    monkeypatch.setattr(members._StrictInfo, "frombuf", classmethod(count))
    with pytest.raises(SourceError, match="oversized: more than 2,000 files and folders, or"):
        made.load(path)
    assert len(counted) < 2_100


def test_an_archive_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(members, "MAX_TOTAL_BYTES", 1 << 20)
    info = tarfile.TarInfo("readme.html")
    for info.size in (2 << 20, 600 << 10):
        parts = [BLOCK, *[info.tobuf(tarfile.USTAR_FORMAT), bytes(info.size)] * 2]
        path = tmp_path / "bomb.tar.gz"
        path.write_bytes(gzip.compress(b"".join(parts)))
        with pytest.raises(SourceError, match="oversized"):
            made.load(path)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (tarfile.XHDTYPE, 4 << 30),
        (tarfile.XHDTYPE, 1 << 20),  # Before Python 3.11.10, tarfile searches it for hours.
        (tarfile.GNUTYPE_LONGNAME, 1 << 20),
        (tarfile.GNUTYPE_SPARSE, 0),
    ],
)
def test_headers_of_any_length_are_not_read_into_memory(kind, size, tmp_path):
    info = tarfile.TarInfo("train/cat/0.png")
    info.type, info.size = kind, size
    path = tmp_path / "headers.tar"
    path.write_bytes(BLOCK + info.tobuf(tarfile.GNU_FORMAT) + b"1" * 2048)
    with pytest.raises(SourceError, match="oversized: a header exceeds the bounds"):
        made.load(path)


def test_a_flipped_bit_in_a_compressed_archive_is_noticed(python_source, tmp_path):
    path = made.tar(tmp_path / "whole", python_source)
    flip_bit(path)
    with pytest.raises(SourceError, match="damaged"):
        made.load(path)
