"""Crops, flips and cutout of a whole batch, against one image at a time in numpy."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10 import augment

SEED = np.array([1, 160], np.int64)


def random_images(count, seed=0):
    # No zeros, so that padding and cutout cannot be taken for pixels of the image.
    return np.random.default_rng(seed).integers(1, 256, (count, 32, 32, 3), np.uint8)


def find_crop(original, augmented):
    """The (top, left, flipped) of the only crop of the padded image that it can be."""
    padded = np.pad(original, [(4, 4), (4, 4), (0, 0)])
    found = []
    for top in range(9):
        for left in range(9):
            crop = padded[top : top + 32, left : left + 32]
            if np.array_equal(crop, augmented):
                found.append((top, left, False))
            if np.array_equal(crop[:, ::-1], augmented):
                found.append((top, left, True))
    assert len(found) == 1
    return found[0]


def find_square(image):
    """Rows and columns of what cutout blackened, which must be a whole rectangle."""
    black = (image == 0).all(axis=2)
    rows, columns = np.flatnonzero(black.any(axis=1)), np.flatnonzero(black.any(axis=0))
    assert black[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
    assert black.sum() == len(rows) * len(columns)
    return rows, columns


def crop_and_flip(images, seed=SEED):
    return augment.crop_and_flip(images, seed).numpy()


def cutout(images, size, seed=SEED):
    return augment.cutout(images, size, seed).numpy()


def chi_squared(counts):
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts)


@pytest.fixture(scope="module")
def crops():
    """The crops of 900 random images."""
    images = random_images(900)
    return np.array([find_crop(*pair) for pair in zip(images, crop_and_flip(images))])


def test_each_image_is_one_of_the_162_crops_of_its_padded_self(crops):
    assert len(crops) == 900


def test_offsets_are_uniform(crops):
    # Chi-squared with 8 degrees of freedom is below 26.1 in 999 of 1,000 cases.
    for offsets in (crops[:, 0], crops[:, 1]):
        assert sorted(set(offsets)) == list(range(9))
        assert chi_squared(np.bincount(offsets, minlength=9)) < 26.1


def test_half_of_the_images_are_flipped(crops):
    assert 390 < crops[:, 2].sum() < 510  # 450, give or take four sigma


def test_top_left_and_flip_do_not_depend_on_each_other(crops):
    correlation = np.corrcoef(crops.T)
    assert np.abs(correlation - np.eye(3)).max() < 0.15


def test_images_of_a_batch_get_crops_of_their_own(crops):
    assert len({tuple(crop) for crop in crops.tolist()}) > 155


def test_the_same_seed_and_position_give_the_same_crops():
    images = random_images(50)
    np.testing.assert_array_equal(crop_and_flip(images), crop_and_flip(images))


@pytest.mark.parametrize("other", [[1, 176], [2, 160]], ids=["position", "seed"])
def test_another_position_or_seed_gives_other_crops(other):
    images = random_images(50)
    different = (crop_and_flip(images) != crop_and_flip(images, np.array(other))).any((1, 2, 3))
    assert different.sum() > 40


def test_batches_with_successive_starts_share_no_random_numbers():
    # The pipeline gives a batch start * 16: each draw of a batch has a number below that.
    images = random_images(64)
    crops = [
        [find_crop(*pair) for pair in zip(images, crop_and_flip(images, np.array([1, start * 16])))]
        for start in (0, 1, 2)
    ]
    columns = [tuple(column) for batch in crops for column in zip(*batch)]
    assert len(set(columns)) == 9


def test_cutout_blackens_one_square_and_nothing_else():
    images = random_images(200)
    for image, cut in zip(images, cutout(images, 8)):
        rows, columns = find_square(cut)
        assert 4 <= len(rows) <= 8
        assert 4 <= len(columns) <= 8
        kept = np.ones((32, 32), bool)
        kept[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = False
        np.testing.assert_array_equal(image[kept], cut[kept])


def test_cutout_is_centred_on_any_pixel():
    cuts = cutout(random_images(2000), 1)
    places = np.array([[part[0] for part in find_square(cut)] for cut in cuts])
    # Chi-squared with 31 degrees of freedom is below 61.1 in 999 of 1,000 cases.
    for axis in (0, 1):
        assert chi_squared(np.bincount(places[:, axis], minlength=32)) < 61.1


def test_cutout_at_the_border_cuts_the_part_inside():
    sizes = {len(part) for cut in cutout(random_images(400), 8) for part in find_square(cut)}
    assert sizes == {4, 5, 6, 7, 8}


def test_cutout_of_the_whole_side_may_blacken_everything_but_no_more():
    assert cutout(random_images(10), 32).shape == (10, 32, 32, 3)


def test_cutout_depends_on_seed_and_position_alone():
    images = random_images(50)
    np.testing.assert_array_equal(cutout(images, 8), cutout(images, 8))
    assert (cutout(images, 8) != cutout(images, 8, np.array([1, 176]))).any((1, 2, 3)).sum() > 40


def test_a_batch_of_one_image_works():
    image = random_images(1)
    find_crop(image[0], crop_and_flip(image)[0])
    find_square(cutout(image, 5)[0])


def test_a_reflected_shift_mirrors_the_image_at_its_outermost_pixels():
    images = random_images(60)
    shifts = set()
    found = augment.crop_and_flip(images, SEED, 2, "reflect", np.zeros(60, np.int64)).numpy()
    for original, shifted in zip(images, found):
        padded = np.pad(original, [(2, 2), (2, 2), (0, 0)], mode="reflect")
        places = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if np.array_equal(padded[top : top + 32, left : left + 32], shifted)
        ]
        assert len(places) == 1
        shifts.update(places)
    assert len(shifts) > 15  # of 25


def test_those_images_are_flipped_that_are_named():
    images, flip = random_images(30), np.arange(30) % 2
    crops = augment.crop_and_flip(images, SEED, flip=flip).numpy()
    assert [find_crop(*pair)[2] for pair in zip(images, crops)] == (flip == 1).tolist()


def test_views_for_a_test_are_the_image_two_shifts_and_all_of_them_mirrored():
    images = random_images(5)
    views = augment.test_views(images).numpy().reshape(2, 3, 5, 32, 32, 3)
    np.testing.assert_array_equal(views[0, 0], images)
    np.testing.assert_array_equal(views[0, 1, :, 1:, 1:], images[:, :-1, :-1])
    np.testing.assert_array_equal(views[0, 1, :, 0, 1:], images[:, 1, :-1])  # mirrored at the edge
    np.testing.assert_array_equal(views[0, 2, :, :-1, :-1], images[:, 1:, 1:])
    np.testing.assert_array_equal(views[1], views[0, :, :, :, ::-1])


def test_the_images_themselves_count_for_half_of_the_mean_answer():
    logits = np.arange(60, dtype=np.float32).reshape(6, 1, 10) ** 2
    weights = np.array([1, 0.5, 0.5, 1, 0.5, 0.5]) / 4
    expected = (weights[:, None, None] * logits).sum(0)
    found = augment.mean_over_views(tf.constant(logits.reshape(6, 10))).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
