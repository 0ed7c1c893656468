"""Image folders, and Kaggle's."""

import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cifar10 import schema
from data_prep.errors import SourceError, UsageError
from data_prep.sources import detect, image_tree
from data_prep.sources.dataset import check
from tests.data_prep import made


def test_an_image_becomes_its_planes_of_rows():
    pixels = made.pixels(0, 1).reshape(32, 32, 3)
    row = image_tree.decode_file(made.encode(Image.fromarray(pixels)), "a.png", None)
    assert bytes(row) == pixels.transpose(2, 0, 1).tobytes()


@pytest.mark.parametrize("mode", [None, "w:gz", "zip"])
def test_an_image_tree_may_be_a_folder_a_tar_or_a_zip(mode, tree):
    dataset = made.load(made.packed(mode, tree))
    assert dataset.kind == "image-tree"
    assert (len(dataset.train), len(dataset.eval), dataset.validation) == (50, 50, None)
    # The red of an image is 20 times its label.
    assert (dataset.train.pixels[:, 0] == 20 * dataset.train.labels).all()
    assert sorted(dataset.train.labels.tolist()) == sorted(list(range(10)) * 5)


def test_what_systems_leave_in_a_tree_and_files_beside_it_are_no_images(tree):
    (tree / "test").rename(tree / "eval")
    before = detect.find(str(tree), seed=0).fingerprint
    for name in (".DS_Store", "train/cat/.DS_Store", "__MACOSX/train/cat/0.png", "README.txt"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(b"noise")
    assert made.load(tree).note == ""
    (tree / "eval" / "fox").mkdir()
    for name in ("train/emu/a.tif", "train/cat/desktop.ini", "train/cat/Thumbs.db"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).touch()
    dataset = made.load(tree)
    assert [len(part) for part in (dataset.train, dataset.eval)] == [50, 50]
    assert len(dataset.class_names) == 10
    assert dataset.note == (
        "Left out, since they are no image files: train/cat/Thumbs.db and 2 more.\n"
        "Left out, since they are no class of images: eval/fox, train/emu."
    )
    assert detect.find(str(tree), seed=0).fingerprint == before


def test_one_name_in_two_unicode_forms_is_one_class(tree):
    for form, split in (("NFC", "train"), ("NFD", "train"), ("NFD", "test")):
        folder_of_class = tree / split / unicodedata.normalize(form, "caf\u00e9")
        folder_of_class.mkdir()
        (folder_of_class / f"{form}.png").write_bytes(made.png())
    dataset = made.load(tree)
    assert dataset.class_names[3] == "caf\u00e9"
    assert np.bincount(dataset.train.labels).tolist() == [5, 5, 5, 2, 5, 5, 5, 5, 5, 5, 5]


def test_a_class_of_trains_is_no_folder_of_kaggles(tree):
    for split in ("train", "test"):
        shutil.copytree(tree / split / "cat", tree / split / "train")
        for name in schema.CLASS_NAMES[:9]:
            shutil.rmtree(tree / split / name)
    assert made.load(tree).class_names == ("train", "truck")


def test_a_tree_without_test_images_says_so_or_holds_some_out(tree):
    (tree / "test").rename(tree / "val")
    with pytest.raises(SourceError, match=r"test/CLASS/\*, .* is missing \(val/ is for valid"):
        made.load(tree)
    dataset = made.load(tree, eval_fraction=0.4)
    assert (len(dataset.train), len(dataset.validation), len(dataset.eval)) == (30, 50, 20)
    (tree / "val").rename(tree / "test")
    with pytest.raises(UsageError, match="--eval-fraction 0.4: the source has its own test folder"):
        made.load(tree, eval_fraction=0.4)


@pytest.mark.parametrize("mode", [None, "w", "zip"])
def test_class_folders_are_divided_by_their_names_and_the_seed_alone(mode, tree):
    shutil.rmtree(tree / "test")
    for name in ("train/cat/notes.txt", "train/beside.png"):
        (tree / name).write_bytes(made.png())
    (tree / "train").rename(tree / "all")
    flat = made.load(tree)
    dataset = made.load(made.packed(mode, tree))
    for found, expected in ((dataset.train, flat.train), (dataset.eval, flat.eval)):
        np.testing.assert_array_equal(found.pixels, expected.pixels)
        np.testing.assert_array_equal(found.labels, expected.labels)
    assert dataset.class_names == schema.CLASS_NAMES
    assert np.bincount(dataset.train.labels).tolist() == [4] * 10
    assert np.bincount(dataset.eval.labels).tolist() == [1] * 10
    assert dataset.note.splitlines() == [
        "10 of 50 images are held out for eval, the same share of each class (--eval-fraction 0.2 "
        "--seed 0).",
        "Left out, since they are in no folder of a class: 1 image files.",
        f"Left out, since they are no image files: {'' if mode is None else 'images/'}"
        "all/cat/notes.txt.",
    ]
    other = made.load(tree, eval_fraction=0.4, seed=1)
    assert np.bincount(other.eval.labels).tolist() == [2] * 10
    chosen = [{*map(tuple, made.load(tree, seed=seed).eval.pixels)} for seed in (0, 1)]
    assert chosen[0] != chosen[1]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cat/persian/1.png", r"cat/persian/1\.png: images must be CLASS/FILE, or SPLIT/CLASS/FIL"),
        ("emu/1.png", "the eval images hold none of class emu"),
    ],
)
def test_class_folders_of_another_depth_or_of_one_image_are_refused(name, reason, tree):
    (tree / "train" / name).parent.mkdir()
    (tree / "train" / name).write_bytes(made.png())
    with pytest.raises(SourceError, match=reason):
        check(made.load((tree / "train").rename(tree / "all")))


def test_images_outside_of_the_splits_are_counted(tree):
    for name in ("Train/cat/x.png", "docs/y.JPG", "preview.webp", "notes.txt", "zebra/z.gif"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(made.png())
    assert made.load(tree).note == (
        "Left out, since they are in no folder of a split: 4 image files."
    )


def test_a_tree_may_mix_sizes_and_formats_if_they_are_resized(tree):
    for number, name in enumerate(("a.webp", "b.gif", "c.bmp", "d.jpeg", "e.PNG")):
        Image.new("RGB", (40 + number, 64), "white").save(tree / "train" / "cat" / name)
    way_out = r"this is 40x64; --resize crop\|pad\|stretch takes images of any size"
    with pytest.raises(SourceError, match=rf"train/cat/a\.webp: .* 32x32 pixels, {way_out}"):
        made.load(tree)
    for how, whites in (("crop", 1024), ("pad", 640), ("stretch", 1024)):
        dataset = made.load(tree, how)
        assert len(dataset.train) == 55
        white = (dataset.train.pixels[:, :1024] > 250).sum(axis=1)
        assert sorted(white)[-5:][0] == whites, how


@pytest.mark.parametrize("small_bytes", [0, 1 << 14], ids=["by threads", "one by one"])
def test_many_images_are_decoded_in_order_and_the_first_bad_one_is_named(
    small_bytes, tree, monkeypatch
):
    monkeypatch.setattr(image_tree, "_SMALL_BYTES", small_bytes)
    colours = [(number % 256, number // 256, 7) for number in range(300)]
    for number, colour in enumerate(colours):
        (tree / "train" / "truck" / f"x{number:04}.png").write_bytes(made.png(colour=colour))
    images = made.load(tree).train
    trucks = images.pixels[images.labels == 9][5:]
    assert [tuple(row) for row in trucks[:, ::1024].tolist()] == colours
    for number in (150, 151):
        (tree / "train" / "truck" / f"x{number:04}.png").write_bytes(b"noise")
    with pytest.raises(SourceError, match=r"^train/truck/x0150\.png: not a sound PNG, JPEG, .* im"):
        made.load(tree)


def test_the_folders_are_the_classes_and_each_split_needs_all_of_them(tree):
    for split in ("train", "test"):
        (tree / split / "truck").rename(tree / split / "Zebra")
    dataset = made.load(tree)
    assert dataset.class_names == ("Zebra", *schema.CLASS_NAMES[:-1])
    assert np.bincount(dataset.train.labels).tolist() == [5] * 10
    (tree / "test" / "Zebra").rename(tree / "test" / "zebra")
    with pytest.raises(SourceError, match="the train images hold none of class zebra"):
        check(made.load(tree))


@pytest.mark.parametrize("name", ["train/cat/more/x.png", "test/a/b/frog/x.JPG", "eval/x.png"])
def test_an_image_that_is_in_no_class_folder_is_named(name, tree):
    before = detect.find(str(tree), seed=0).fingerprint
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_bytes(made.png())
    split = name.partition("/")[0]
    with pytest.raises(SourceError, match=rf"{name}: images must be {split}/CLASS/FILE, without"):
        made.load(tree)
    assert detect.find(str(tree), seed=0).fingerprint != before  # So the next run fails, too.


def test_the_fingerprint_follows_the_content_not_the_times(tree):
    before = detect.find(str(tree), seed=0).fingerprint
    (tree / "train" / "cat" / "0000.png").touch()
    (tree / "notes.txt").write_text("not an image")
    assert detect.find(str(tree), seed=0).fingerprint == before
    (tree / "train" / "cat" / "0000.png").write_bytes(made.png())
    assert detect.find(str(tree), seed=0).fingerprint != before


@pytest.mark.parametrize(
    ("name", "size", "reason"),
    [
        ("images/train/cat/large.png", (64 << 20) + 1, r"cat/large\.png: oversized: 67108865 byt"),
        ("old/train/cat/0.png", 9, "are two folders of the same split; give one of them"),
    ],
)
def test_what_does_not_belong_into_a_tree_is_named(name, size, reason, tree):
    (tree.parent / name).parent.mkdir(parents=True, exist_ok=True)
    with (tree.parent / name).open("wb") as file:
        file.truncate(size)
    with pytest.raises(SourceError, match=reason):
        made.load(tree.parent)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made.kaggle_folder(tmp_path / "kaggle")


@pytest.mark.parametrize("mode", [None, "w", "w:gz", "zip"])
def test_kaggles_layout_is_read_and_a_fifth_is_held_out_whatever_the_seed(mode, folder):
    dataset = made.load(made.packed(mode, folder))
    assert dataset.kind == "kaggle"
    np.testing.assert_array_equal(dataset.eval.pixels, made.load(folder, seed=5).eval.pixels)
    for images, per_class in ((dataset.train, 8), (dataset.eval, 2)):
        assert np.bincount(images.labels).tolist() == [per_class] * 10
        # The red of an image is 20 times its label.
        assert (images.pixels[:, 0] == 20 * images.labels).all()
    numbers = [*dataset.train.pixels[:, 1024], *dataset.eval.pixels[:, 1024]]
    assert sorted(numbers) == list(range(100))
    assert dataset.note == (
        "Kaggle's test images have no labels: 20 of its 100 training images are held out for eval."
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1,frog\n", r"trainLabels\.csv:102: image 1 has a label already"),
        ("101,zebra\n", r"trainLabels\.csv:102: must be the num.* got '101,zebra' below id,label$"),
        ("101\n", r"trainLabels\.csv:102: must be the number of .* got '101' below id,label$"),
        ("101,cat\n", r"trainLabels\.csv: train/101\.png is missing"),
        ("x.png", r"train/x\.png: trainLabels\.csv has no label for it"),
        ('"' + "x" * 200_000, r"trainLabels\.csv: field larger than field limit"),
    ],
)
def test_a_table_that_does_not_fit_the_images_is_named(line, reason, folder):
    if line == "x.png":
        (folder / "train" / line).write_bytes(made.png())
    else:
        with (folder / "trainLabels.csv").open("a") as file:
            file.write(line)
    with pytest.raises(SourceError, match=f"^{reason}"):
        made.load(folder)
