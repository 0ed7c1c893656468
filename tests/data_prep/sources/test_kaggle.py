from pathlib import Path

import numpy as np
import pytest

from data_prep import cli
from data_prep.errors import SourceError
from data_prep.sources import detect
from tests.data_prep import made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made.kaggle_folder(tmp_path / "kaggle")


@pytest.mark.parametrize("mode", [None, "w", "w:gz", "zip"])
def test_kaggles_layout_is_read_and_a_fifth_is_held_out(mode, folder):
    dataset = made.load(made.packed(mode, folder))
    assert dataset.kind == "kaggle"
    for images, per_class in ((dataset.train, 8), (dataset.eval, 2)):
        assert np.bincount(images.labels).tolist() == [per_class] * 10
        # The red of an image is 20 times its label.
        assert (images.pixels[:, 0] == 20 * images.labels).all()
    numbers = [*dataset.train.pixels[:, 1024], *dataset.eval.pixels[:, 1024]]
    assert sorted(numbers) == list(range(100))
    assert dataset.note == (
        "Kaggle's test images have no labels: 20 of its 100 training images are held out for eval."
    )


def test_no_seed_changes_the_images_for_evaluation(folder):
    one, other = (detect.find(str(folder), seed).load().eval.pixels for seed in (0, 5))
    np.testing.assert_array_equal(one, other)


def test_a_change_of_labels_or_images_makes_the_records_anew(folder):
    def converted() -> str:
        out = folder.parent / "out"
        assert cli.main(["--source", str(folder), "--out", str(out)]) == 0
        return (out / "manifest.json").read_text()

    first = converted()
    (folder / "test" / "2.png").write_bytes(b"not read")
    assert converted() == first
    table = folder / "trainLabels.csv"
    table.write_text(table.read_text().replace("\n1,airplane\n2,automobile", "\n2,cat\n1,dog"))
    second = converted()
    (folder / "train" / "1.png").write_bytes(made.png())
    assert len({first, second, converted()}) == 3


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1,frog\n", r"trainLabels\.csv:102: image 1 has a label already"),
        ("101,zebra\n", r"trainLabels\.csv:102: must be the number of an image and one of airpl"),
        ("101\n", r"trainLabels\.csv:102: must be the number of an image and one of airplane"),
        ("101,cat\n", r"trainLabels\.csv: train/101\.png is missing"),
        ('"' + "x" * 200_000, r"trainLabels\.csv: field larger than field limit"),
    ],
)
def test_a_table_that_does_not_fit_the_images_is_named(line, reason, folder):
    with (folder / "trainLabels.csv").open("a") as file:
        file.write(line)
    with pytest.raises(SourceError, match=f"^{reason}"):
        made.load(folder)


def test_an_image_without_a_label_is_named(folder):
    (folder / "train" / "x.png").write_bytes(made.png())
    with pytest.raises(SourceError, match=r"^train/x\.png: trainLabels\.csv has no label for it"):
        made.load(folder)


def test_an_archive_inside_is_to_be_unpacked(tmp_path):
    for name in ("train.7z", "trainLabels.csv"):
        (tmp_path / name).write_bytes(b"id,label\n")
    with pytest.raises(SourceError, match=r"such as train\.7z, must be unpacked$"):
        made.load(tmp_path)


def test_a_tree_of_classes_may_keep_kaggles_table(tmp_path):
    tree = made.image_folder(tmp_path / "images")
    (tree / "trainLabels.csv").write_text("id,label\n1,cat\n")
    assert made.load(tree).kind == "image-tree"
