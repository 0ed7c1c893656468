"""How training images are divided, and the synthetic set."""

import numpy as np
import pytest

from data_prep.errors import SourceError, UsageError
from data_prep.sources import synthetic
from data_prep.sources.dataset import Dataset, Images, check, hold_out, split_training

PUBLISHED = np.repeat(np.arange(10, dtype=np.uint8), 5_000)


def test_the_published_set_gives_45000_and_5000_with_500_of_each_class():
    train, validation = split_training(PUBLISHED, None, seed=0)
    assert (len(train), len(validation)) == (45_000, 5_000)
    assert np.bincount(PUBLISHED[validation]).tolist() == [500] * 10
    assert sorted([*train, *validation]) == list(range(50_000))
    for part in (train, validation):
        assert (np.diff(part) < 0).any()  # in random order


def test_another_seed_chooses_others_and_the_same_seed_the_same():
    first, again, other = (split_training(PUBLISHED, 5_000, seed)[1] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert set(first) != set(other)


def test_of_each_class_an_image_at_least_is_held_out_and_one_is_kept():
    labels = np.array([0] * 9 + [1] * 2, np.uint8)
    for fraction in (0.01, 0.99):
        assert [set(labels[part]) for part in hold_out(labels, fraction, 0)] == [{0, 1}, {0, 1}]


def test_every_class_keeps_a_training_image_however_uneven_the_classes():
    labels = np.array([0] * 50 + [1] + [2, 2] + list(range(3, 10)) * 3, np.uint8)
    train, validation = split_training(labels, 64, seed=0)
    assert len(validation) == 64
    assert np.bincount(labels[train], minlength=10).tolist() == [1] * 10


@pytest.mark.parametrize("size", [-1, 1_991])
def test_a_validation_size_that_does_not_fit_says_what_would(size):
    labels = (np.arange(2_000) % 10).astype(np.uint8)
    with pytest.raises(UsageError, match=rf"0 to 1990 for 2000 .* got {size}; .* it is 200"):
        split_training(labels, size, seed=0)


def test_the_classes_are_balanced_and_do_not_have_cifar10_names():
    dataset = synthetic.load(1_000, 0)
    assert np.bincount(dataset.train.labels).tolist() == [100] * 10
    assert np.bincount(dataset.eval.labels).tolist() == [20] * 10
    assert "airplane" not in dataset.class_names
    assert dataset.kind == "synthetic"


RGB = np.zeros((4, 3072), np.uint8)
LABELS = np.array([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("names", "pixels", "labels", "reason"),
    [
        (("cat",), RGB, LABELS, r"own: there must be 2 to 128 classes, got 1 \(cat\)$"),
        (tuple(map(str, range(129))), RGB, LABELS, r"got 129 \(0, 1, 2, \.\.\.\)$"),
        (
            ("cat", "dog"),
            RGB.reshape(4, 32, 32, 3),
            LABELS,
            r"own: the eval images must be uint8 \[n, 3072\] \(red, green, blue plane\), their "
            r"labels whole numbers \[n\]; got uint8 \[4, 32, 32, 3\] and int64 \[4\]$",
        ),
        (("cat", "dog"), RGB / 255, LABELS, r"got float64 \[4, 3072\] and int64 \[4\]$"),
        (("cat", "dog"), RGB[:3], LABELS, r"got uint8 \[3, 3072\] and int64 \[4\]$"),
        (("cat", "dog"), RGB, LABELS / 2, r"got uint8 \[4, 3072\] and float64 \[4\]$"),
        (("cat", "dog"), RGB, LABELS - 1, "the eval images have labels of more classes than ther"),
        (("cat", "dog", "emu"), RGB, LABELS, "the train images hold none of class emu; each"),
    ],
)
def test_images_and_classes_of_another_form_are_refused(names, pixels, labels, reason):
    with pytest.raises(SourceError, match=reason):
        check(Dataset("own", names, Images(RGB, LABELS), Images(pixels, labels)))
