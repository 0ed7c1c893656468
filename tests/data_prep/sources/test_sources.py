import os
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Optional

import numpy as np
import pytest
from PIL import Image

from data_prep.errors import SourceError, UsageError
from data_prep.sources import decoder, detect, image_tree, member, members
from data_prep.sources.dataset import Dataset
from tests.data_prep import made


def _load(path: Path) -> Dataset:
    return detect.find(str(path), seed=0).load()


def _zip(path: Path, folder: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, file.relative_to(folder.parent))
    return path


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *(("python", mode) for mode in (None, "w", "w:gz", "w:bz2", "w:xz")),
        *(("binary", mode) for mode in (None, "w:gz")),
    ],
)
def test_published_archives_are_told_apart_and_hold_the_same(
    kind: str, mode: Optional[str], tmp_path: Path
) -> None:
    make = {"python": made.python_folder, "binary": made.binary_folder}[kind]
    path = make(tmp_path / "cifar-10-batches")
    if mode is not None:
        path = made.tar(tmp_path / "an archive", path, mode)
    dataset = _load(path)
    assert dataset.kind == f"cifar-10-{kind}"
    assert np.array_equal(dataset.train.pixels, np.concatenate([made.pixels(i) for i in range(5)]))
    assert dataset.train.labels.tolist() == made.labels() * 5
    assert np.array_equal(dataset.eval.pixels, made.pixels(5))


@pytest.mark.parametrize("mode", [None, "w:gz", "zip"])
def test_an_image_tree_may_be_a_folder_a_tar_or_a_zip(mode: Optional[str], tmp_path: Path) -> None:
    path = made.image_folder(tmp_path / "images")
    if mode == "zip":
        path = _zip(tmp_path / "images.zip", path)
    elif mode is not None:
        path = made.tar(tmp_path / "an archive", path, mode)
    dataset = _load(path)
    assert dataset.kind == "image-tree"
    assert (len(dataset.train), len(dataset.eval), dataset.validation) == (50, 50, None)
    # Every image of class 3 has red 60 and blue 7, in CHW order.
    row = dataset.train.pixels[dataset.train.labels == 3][0].reshape(3, 1024)
    assert row[0].tolist() == [60] * 1024
    assert row[2].tolist() == [7] * 1024
    assert sorted(dataset.train.labels.tolist()) == sorted(list(range(10)) * 5)


def test_eval_and_validation_folders_of_a_tree_are_taken_as_they_are(tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    (tree / "test").rename(tree / "eval")
    shutil.copytree(tree / "train", tree / "validation")
    (tree / ".DS_Store").write_bytes(b"noise")
    (tree / "train" / "cat" / ".DS_Store").write_bytes(b"noise")
    (tree / "__MACOSX" / "train" / "cat").mkdir(parents=True)
    (tree / "__MACOSX" / "train" / "cat" / "0.png").write_bytes(b"noise")
    (tree / "README.txt").write_text("beside the folders, anything may lie")
    dataset = _load(tree)
    assert dataset.validation is not None
    assert [len(part) for part in (dataset.train, dataset.validation, dataset.eval)] == [50] * 3


@pytest.mark.parametrize("name", ["validation", "valid", "val"])
def test_the_validation_folder_of_a_tree_has_three_names(name: str, tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    for row in range(4):  # of the five in each class
        for file in (tree / "train").glob(f"*/{row:04}.png"):
            (tree / name / file.parent.name).mkdir(parents=True, exist_ok=True)
            file.rename(tree / name / file.parent.name / file.name)
    dataset = _load(tree)
    assert dataset.validation is not None
    assert (len(dataset.train), len(dataset.validation)) == (10, 40)
    assert dataset.note == ""
    (tree / "validation" / "cat").mkdir(parents=True, exist_ok=True)
    (tree / "validation" / "cat" / "x.png").write_bytes(made.png())
    if name != "validation":
        with pytest.raises(SourceError, match=f"{name} and validation are two names of the same"):
            _load(tree)


@pytest.mark.parametrize("mode", [None, "w", "zip"])
def test_images_outside_of_the_splits_are_counted(mode: Optional[str], tmp_path: Path) -> None:
    path = made.image_folder(tmp_path / "images")
    for name in ("Train/cat/x.png", "docs/y.JPG", "preview.webp", "notes.txt", "zebra/z.gif"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(made.png())
    if mode == "zip":
        path = _zip(tmp_path / "images.zip", path)
    elif mode is not None:
        path = made.tar(tmp_path / "images.tar", path, mode)
    dataset = _load(path)
    assert (len(dataset.train), len(dataset.eval)) == (50, 50)
    assert dataset.note == "Left out, since they are in no folder of a split: 4 image files."


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1", "LA"])
def test_grey_palette_and_alpha_become_rgb(mode: str) -> None:
    assert decoder.decode(made.png(mode=mode), "x.png") == b"\0" * 3072


def test_a_tree_may_mix_sizes_and_formats_if_they_are_resized(tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    for number, name in enumerate(("a.webp", "b.gif", "c.bmp", "d.jpeg", "e.PNG")):
        Image.new("RGB", (40 + number, 64), "white").save(tree / "train" / "cat" / name)
    with pytest.raises(SourceError, match=r"train/cat/a\.webp: images must be 32x32 pixels, this"):
        _load(tree)
    for how, whites in (("crop", 1024), ("pad", 640), ("stretch", 1024)):
        dataset = detect.find(str(tree), seed=0, resize=how).load()
        assert len(dataset.train) == 55
        white = (dataset.train.pixels[:, :1024] > 250).sum(axis=1)
        assert sorted(white)[-5:][0] == whites, how


def test_a_photograph_may_have_more_bytes_than_a_small_image(tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    noise = np.random.default_rng(0).integers(0, 256, (700, 600, 3), np.uint8)
    path = tree / "train" / "cat" / "large.png"
    Image.fromarray(noise).save(path)
    assert path.stat().st_size > image_tree.MAX_IMAGE_BYTES
    assert len(detect.find(str(tree), seed=0, resize="crop").load().train) == 51


def test_a_file_of_64_mebibytes_is_the_largest_that_is_resized(tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    with (tree / "train" / "cat" / "large.png").open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(SourceError, match=r"cat/large\.png: oversized: 67108865 bytes"):
        detect.find(str(tree), seed=0, resize="crop")


def test_an_image_with_too_many_pixels_is_not_resized(tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    (tree / "train" / "cat" / "0000.png").write_bytes(made.png((10_000, 5_001), "1"))
    with pytest.raises(SourceError, match=r"0000\.png: has 10000x5001 pixels, the limit is 50,00"):
        detect.find(str(tree), seed=0, resize="crop").load()


@pytest.mark.parametrize("kind", ["python", "binary"])
def test_only_image_files_are_resized(kind: str, tmp_path: Path) -> None:
    make = {"python": made.python_folder, "binary": made.binary_folder}[kind]
    source = detect.find(str(make(tmp_path / "batches")), seed=0, resize="pad")
    with pytest.raises(UsageError, match=f"--resize is for image files, but .* is cifar-10-{kind}"):
        source.load()
    with pytest.raises(UsageError, match="--resize is for image files, but synthetic is"):
        detect.find("synthetic", seed=0, resize="pad")


def test_photographs_are_decoded_by_processes_in_batches_of_few_megabytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoder, "_BYTES_AT_ONCE", 500)
    batches: list[int] = []

    def counted(batch: list[tuple[str, bytes]], resize: Optional[str]) -> bytes:
        batches.append(len(batch))
        return b"".join(decoder.decode(data, name, resize) for name, data in batch)

    monkeypatch.setattr(decoder, "decode_batch", counted)
    file = made.png((64, 64))  # about 200 bytes
    assert len(list(decoder.decode_all(iter([("x.png", file)] * 12), "crop"))) == 12
    assert set(batches) == {-(-500 // len(file))}


def test_many_images_are_decoded_by_processes_in_the_same_order() -> None:
    here = decoder._WORTH_PROCESSES * decoder._FILES_AT_ONCE
    # Seven batches are for the processes, so that each of them answers more than once.
    count = here + 6 * decoder._FILES_AT_ONCE + 50
    colours = [(i % 256, i // 256, 7) for i in range(count)]
    files = [(f"{i}.png", made.png(colour=colour)) for i, colour in enumerate(colours)]
    assert len(files) == 3_634
    images = decoder.decode_all(iter(files))
    assert [(image[0], image[1024], image[2048]) for image in images] == colours
    files[-60] = ("bad.png", b"noise")
    files[-1] = ("worse.png", b"noise")
    with pytest.raises(SourceError, match=r"^bad\.png: not a sound PNG, JPEG, .* image"):
        list(decoder.decode_all(iter(files)))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"just text", "not a sound PNG, JPEG, WEBP, GIF or BMP image"),
        (b"GIF89a" + b"\0" * 50, "not a sound PNG, JPEG"),
        (made.png()[:60], "not a sound PNG, JPEG"),
        (
            made.png((33, 32)),
            r"must be 32x32 pixels, this is 33x32; --resize crop\|pad\|stretch takes images of any",
        ),
        (made.png((20_000, 9_000), "1"), "must be 32x32 pixels, this is 20000x9000|bomb"),
        (
            b"\0" * (image_tree.MAX_IMAGE_BYTES + 1),
            r"oversized: 1048577 bytes, .*; --resize crop\|pad\|stretch takes images of any size",
        ),
    ],
)
def test_a_file_that_is_no_image_of_ours_is_named(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    tree = made.image_folder(tmp_path / "images")
    (tree / "test" / "frog" / "0002.png").write_bytes(content)
    with pytest.raises(SourceError, match=rf"test/frog/0002\.png: .*({reason})"):
        _load(tree)


def test_a_file_of_another_type_in_a_class_folder_is_named(tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    (tree / "train" / "cat" / "notes.txt").write_text("a cat")
    with pytest.raises(SourceError, match=r"train/cat/notes\.txt: must be an image file \(\.png, "):
        _load(tree)


def test_a_class_that_cifar10_does_not_have_is_named(tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    (tree / "train" / "cat").rename(tree / "train" / "zebra")
    with pytest.raises(SourceError, match="class folders must be airplane, .* got 'zebra'"):
        _load(tree)


@pytest.mark.parametrize("mode", [None, "w"])
@pytest.mark.parametrize(
    "name", ["train/cat/more/x.png", "train/x.png", "test/a/b/frog/x.JPG", "eval/x.png"]
)
def test_an_image_that_is_in_no_class_folder_is_named(
    name: str, mode: Optional[str], tmp_path: Path
) -> None:
    path = made.image_folder(tmp_path / "images")
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(made.png())
    if mode is not None:
        path = made.tar(tmp_path / "images.tar", path, mode)
    split = name.partition("/")[0]
    with pytest.raises(SourceError, match=rf"{name}: images must be {split}/CLASS/FILE, without"):
        _load(path)


def test_a_source_whose_images_are_all_misplaced_says_so(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "x.png").write_bytes(made.png())
    with pytest.raises(SourceError, match=r"^train/x\.png: images must be train/CLASS/FILE"):
        _load(tmp_path)


def test_a_misplaced_image_ends_the_next_conversion_too(tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    before = detect.find(str(tree), seed=0).fingerprint
    (tree / "train" / "x.png").write_bytes(made.png())
    assert detect.find(str(tree), seed=0).fingerprint != before


@pytest.mark.parametrize("mode", [None, "w"])
@pytest.mark.parametrize(
    ("copy", "reason"),
    [
        ("backup", "backup/test/airplane/0000.png: a/test and backup/test are two folders of the"),
        ("a/old", "a/test/airplane/0000.png: a/old/test and a/test are two folders of the same"),
    ],
)
def test_two_trees_are_not_merged(
    copy: str, reason: str, mode: Optional[str], tmp_path: Path
) -> None:
    path = tmp_path / "source"
    made.image_folder(path / "a")
    made.image_folder(path / copy)
    if mode is not None:
        path = made.tar(tmp_path / "trees.tar", path, mode)
        reason = "are two folders of the same split; give one of them"  # in the order of the tar
    with pytest.raises(SourceError, match=reason):
        _load(path)


def test_the_splits_of_a_tree_may_lie_in_different_folders(tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    for split in ("train", "test"):
        (tmp_path / "source" / f"{split}-images").mkdir(parents=True)
        (tree / split).rename(tmp_path / "source" / f"{split}-images" / split)
    dataset = _load(tmp_path / "source")
    assert (len(dataset.train), len(dataset.eval)) == (50, 50)


def test_a_class_without_images_is_named(tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    shutil.rmtree(tree / "test" / "cat")
    with pytest.raises(SourceError, match="the eval images hold none of class cat"):
        _load(tree)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("data_batch_2", None, "data_batch_2 missing; all six"),
        ("data_batch_2", b"", "data_batch_2: the file is empty"),
        ("test_batch", b"garbage", "test_batch: not a readable CIFAR-10 batch"),
        (
            "test_batch",
            made.batch_pickle(made.pixels(5), [*made.labels()[:-1], 10]),
            "test_batch: image 19: label must be 0 to 9, got 10",
        ),
        (
            "test_batch",
            made.batch_pickle(made.pixels(5), made.labels(19)),
            "20 images need a list of 20 labels, got 19",
        ),
        ("data_batch_3", made.python2_pickle({b"labels": []}), "data_batch_3: has no 'data'"),
        (
            "data_batch_3",
            made.batch_pickle(made.pixels(2, 10), made.labels(10)),
            "must hold the same number of images, got 20, 20, 10, 20, 20",
        ),
        (
            "batches.meta",
            made.python2_pickle({b"label_names": [b"cat", b"dog"]}),
            r"batches\.meta: the classes must be airplane",
        ),
    ],
)
def test_a_bad_python_batch_is_named(
    name: str, content: Optional[bytes], reason: str, tmp_path: Path
) -> None:
    folder = made.python_folder(tmp_path / "batches")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(SourceError, match=reason):
        _load(folder)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("test_batch.bin", b"\x01" * 3072, "3072 bytes are not a whole number of 3073-byte"),
        ("test_batch.bin", b"\0" * 3073 + b"\x0b" * 3073, "image 1: label must be 0 to 9, got 11"),
        ("data_batch_5.bin", b"\0" * 3073, "must hold the same number of images"),
        ("batches.meta.txt", b"cat\ndog\n", "are cat, dog"),
    ],
)
def test_a_bad_binary_batch_is_named(
    name: str, content: bytes, reason: str, tmp_path: Path
) -> None:
    folder = made.binary_folder(tmp_path / "batches")
    (folder / name).write_bytes(content)
    with pytest.raises(SourceError, match=reason):
        _load(folder)


def test_a_test_batch_that_was_cut_between_two_images_is_named(tmp_path: Path) -> None:
    for name in made.BATCHES:
        with (tmp_path / f"{name}.bin").open("wb") as file:
            file.truncate((9_999 if name == "test_batch" else 10_000) * 3073)
    with pytest.raises(SourceError, match="test_batch must hold 10000 images .* holds 9999$"):
        _load(tmp_path)


def test_an_oversized_batch_is_refused_before_it_is_read(tmp_path: Path) -> None:
    folder = made.binary_folder(tmp_path / "batches")
    with (folder / "data_batch_1.bin").open("wb") as file:
        file.truncate(41 << 20)
    with pytest.raises(SourceError, match="oversized: 42991616 bytes, where at most 41943040"):
        next(m for m in members.walk(folder) if m.name == "data_batch_1.bin").read(40 << 20)
    with pytest.raises(SourceError, match=r"data_batch_1\.bin: oversized"):
        _load(folder)


def test_an_archive_cut_anywhere_is_refused(tmp_path: Path) -> None:
    folder = made.python_folder(tmp_path / "batches")
    for mode in ("w", "w:gz", "w:bz2", "w:xz"):
        whole = made.tar(tmp_path / "whole", folder, mode).read_bytes()
        for length in (3, 300, len(whole) // 3, len(whole) * 9 // 10):
            cut = tmp_path / "cut"
            cut.write_bytes(whole[:length])
            with pytest.raises(SourceError, match=r"\A[^\n]+\Z"):
                _load(cut)


def test_a_plain_tar_cut_between_two_members_is_refused(tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    path = made.tar(tmp_path / "tree.tar", tree, "w")
    with tarfile.open(path) as archive:
        last = archive.getmembers()[-1]
    path.write_bytes(path.read_bytes()[: last.offset])
    with pytest.raises(SourceError, match="truncated: the end of the archive is missing"):
        _load(path)


def test_a_flipped_bit_in_a_compressed_archive_is_noticed(tmp_path: Path) -> None:
    path = made.tar(tmp_path / "whole", made.binary_folder(tmp_path / "batches"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(SourceError, match="damaged"):
        _load(path)


def test_a_zip_whose_member_has_no_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nameless.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", b"content")
    content = path.read_bytes()
    directory = content.index(b"PK\x01\x02")
    # The length of the name, 28 bytes into the entry, and the name itself, 46 bytes into it.
    nameless = content[: directory + 28] + b"\0\0" + content[directory + 30 : directory + 46]
    end = bytearray(content[directory + 47 :])
    end[12] -= 1  # bytes of the directory
    path.write_bytes(nameless + end)
    with pytest.raises(SourceError, match="nameless.zip: not an archive, or damaged"):
        _load(path)


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "..\\evil"])
def test_a_name_that_leads_out_of_the_archive_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(SourceError, match="leads out of its folder"):
        _load(path)
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr(name, b"evil")
    with pytest.raises(SourceError, match="leads out of its folder"):
        _load(path)


def test_links_in_an_archive_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "link.tar"
    info = tarfile.TarInfo("train/cat/0.png")
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(path, "w") as archive:
        archive.addfile(info)
    with pytest.raises(SourceError, match="is a link or device"):
        _load(path)


def test_an_archive_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "MAX_TOTAL_BYTES", 1 << 20)
    path = tmp_path / "bomb.tar.gz"
    noise = tmp_path / "readme.html"
    noise.write_bytes(b"\0" * (4 << 20))
    with tarfile.open(path, "w:gz") as archive:
        archive.add(noise, "readme.html")
    with pytest.raises(SourceError, match="oversized"):
        _load(path)
    monkeypatch.setattr(member, "MAX_RESIZED_TOTAL_BYTES", 2 << 20)
    with pytest.raises(SourceError, match="oversized"):
        detect.find(str(path), seed=0, resize="crop").load()


def test_a_folder_of_more_bytes_than_any_set_of_small_images_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "MAX_TOTAL_BYTES", 1_000)
    tree = made.image_folder(tmp_path / "images")
    with pytest.raises(SourceError, match=r"more than 1,000 bytes; .* --resize crop\|pad\|stretch"):
        _load(tree)
    assert len(detect.find(str(tree), seed=0, resize="crop").load().train) == 50


def test_a_tar_header_of_any_length_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "pax.tar"
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, 4 << 30
    path.write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + b"\0" * 2048)
    with pytest.raises(SourceError, match="oversized"):
        _load(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"plain text that is no archive" * 50, "not an archive"),
        (b"\x28\xb5\x2f\xfd rest", "cannot read zstd"),
        (b"PK\x03\x04 rest", "not an archive"),
    ],
)
def test_a_file_that_is_no_archive_is_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=reason):
        _load(path)


def test_a_folder_of_something_else_says_what_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(SourceError, match="holds neither data_batch_1 .* nor train/CLASS"):
        _load(tmp_path)


def test_a_missing_path_says_what_can_be_given() -> None:
    with pytest.raises(SourceError, match="/nowhere: no such file or folder; give an archive"):
        detect.find("/nowhere", seed=0)


def test_the_fingerprint_follows_the_content_not_the_times(tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    before = detect.find(str(tree), seed=0).fingerprint
    (tree / "train" / "cat" / "0000.png").touch()
    (tree / "notes.txt").write_text("not an image")
    assert detect.find(str(tree), seed=0).fingerprint == before
    (tree / "train" / "cat" / "0000.png").write_bytes(made.png())
    assert detect.find(str(tree), seed=0).fingerprint != before


def test_hidden_links_to_nowhere_are_skipped_and_others_are_named(tmp_path: Path) -> None:
    tree = made.image_folder(tmp_path / "images")
    (tree / "train" / "cat" / ".#0000.png").symlink_to("me@host.1")  # as Emacs locks a file
    (tree / "train" / "cat" / ".pipe.png").symlink_to("/dev/zero")
    assert len(_load(tree).train) == 50
    (tree / "train" / "cat" / "x.png").symlink_to("nowhere")
    with pytest.raises(SourceError, match=r"^train/cat/x\.png: No such file or directory$"):
        _load(tree)


def test_linked_folders_of_a_tree_are_followed_and_pipes_are_not_waited_for(
    tmp_path: Path,
) -> None:
    tree = made.image_folder(tmp_path / "images")
    linked = tmp_path / "linked"
    linked.mkdir()
    for split in ("train", "test"):
        (linked / split).symlink_to(tree / split)
    assert len(_load(linked).train) == 50
    os.mkfifo(tree / "train" / "cat" / "pipe.png")
    with pytest.raises(SourceError, match=r"train/cat/pipe\.png: is not a regular file"):
        _load(tree)
