"""Crops, flips and cutout of a whole batch, against one image at a time in numpy."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.input import augment
from cifar10.input.random_words import words


def random_words(count, first=0):
    return words(np.arange(first, first + count, dtype=np.uint64))


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


def crop_and_flip(images, first=0, padding=4, fill="zeros", flip=None):
    count = len(images)
    drawn = augment.draw(np.arange(count), random_words(count, first), padding, flip)
    return augment.render(augment.pixel_table(images), drawn, fill).numpy()


def cutout(images, size, first=0):
    count = len(images)
    random = random_words(count, first)
    drawn = augment.draw(np.arange(count), random, padding=0, flip=np.zeros(count))
    return augment.render(augment.pixel_table(images), drawn, cutout=size).numpy()


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


def test_an_image_is_distorted_by_its_own_word_alone():
    images = random_images(50)
    whole, part = crop_and_flip(images), crop_and_flip(images[20:30], first=20)
    np.testing.assert_array_equal(whole[20:30], part)
    whole, part = cutout(images, 8), cutout(images[20:30], 8, first=20)
    np.testing.assert_array_equal(whole[20:30], part)


def test_other_words_give_other_crops_and_cutouts():
    images = random_images(50)
    for distort in (crop_and_flip, lambda images, first=0: cutout(images, 8, first)):
        assert (distort(images) != distort(images, first=50)).any((1, 2, 3)).sum() > 40


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


def test_a_batch_of_one_image_works():
    image = random_images(1)
    find_crop(image[0], crop_and_flip(image)[0])
    find_square(cutout(image, 5)[0])


def test_a_reflected_shift_mirrors_the_image_at_its_outermost_pixels():
    images = random_images(60)
    shifts = set()
    found = crop_and_flip(images, 0, 2, "reflect", np.zeros(60, np.int64))
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
    crops = crop_and_flip(images, flip=flip)
    assert [find_crop(*pair)[2] for pair in zip(images, crops)] == (flip == 1).tolist()


@pytest.mark.parametrize("fill", ["zeros", "reflect"])
def test_crop_flip_and_cutout_together_are_those_of_numpy(fill):
    images = random_images(40)
    drawn = augment.draw(np.arange(40)[::-1], random_words(40)).numpy()
    pictures = augment.render(augment.pixel_table(images), drawn, fill, cutout=7).numpy()
    mode = {"zeros": "constant", "reflect": "reflect"}[fill]
    for (number, down, right, flip, row, column), picture in zip(drawn.tolist(), pictures):
        expected = np.pad(images[number], [(4, 4), (4, 4), (0, 0)], mode)
        expected = expected[4 + down : 36 + down, 4 + right : 36 + right]
        expected = expected[:, ::-1].copy() if flip else expected.copy()
        expected[max(row - 3, 0) : row + 4, max(column - 3, 0) : column + 4] = 0
        np.testing.assert_array_equal(picture, expected)


def test_pictures_may_be_of_any_images_of_the_split():
    images = random_images(9)
    drawn = augment.draw(np.array([7, 0, 7]), random_words(3), padding=0, flip=np.zeros(3)).numpy()
    pictures = augment.render(augment.pixel_table(images), drawn).numpy()
    np.testing.assert_array_equal(pictures, images[[7, 0, 7]])


def test_a_table_ends_with_one_black_pixel():
    table = augment.pixel_table(random_images(2)).numpy()
    assert table.shape == (2 * 32 * 32 + 1, 3)
    assert (table == 0).all(axis=1).tolist() == 2 * 32 * 32 * [False] + [True]


def test_images_and_flips_may_be_integers_of_any_type():
    plain, other = (
        augment.draw(tf.constant([7, 0], kind), random_words(2), flip=tf.constant([0, 1], kind))
        for kind in (tf.int64, tf.int32)
    )
    np.testing.assert_array_equal(plain.numpy(), other.numpy())


def test_the_largest_shift_mirrors_the_whole_image():
    images = random_images(1)
    drawn = np.array([[0, 31, -31, 0, 0, 0]])
    (picture,) = augment.render(augment.pixel_table(images), drawn, "reflect").numpy()
    expected = np.pad(images[0], [(31, 31), (31, 31), (0, 0)], "reflect")[62:94, 0:32]
    np.testing.assert_array_equal(picture, expected)


def test_views_for_a_test_are_the_image_two_shifts_and_all_of_them_mirrored():
    images = random_images(5)
    views = augment.test_views(images).numpy().reshape(2, 3, 5, 32, 32, 3)
    np.testing.assert_array_equal(views[0, 0], images)
    np.testing.assert_array_equal(views[0, 1, :, 1:, 1:], images[:, :-1, :-1])
    np.testing.assert_array_equal(views[0, 1, :, 0, 1:], images[:, 1, :-1])  # mirrored at the edge
    np.testing.assert_array_equal(views[0, 2, :, :-1, :-1], images[:, 1:, 1:])
    np.testing.assert_array_equal(views[1], views[0, :, :, :, ::-1])


def test_the_images_themselves_count_for_half_of_the_mean_answer():
    logits = np.arange(120, dtype=np.float32).reshape(6, 2, 10) ** 2
    weights = np.array([1, 0.5, 0.5, 1, 0.5, 0.5]) / 4
    expected = (weights[:, None, None] * logits).sum(0)
    found = augment.mean_over_views(tf.constant(logits.reshape(12, 10))).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("images", "count"), [(1, 1), (4, 1), (5, 2), (100, 25), (0, 0)])
def test_a_quarter_of_the_images_has_the_least_certain_answers(images, count):
    logits = np.random.default_rng(5).normal(size=(images, 10)).astype(np.float32)
    margins = [one[-1] - one[-2] for one in np.sort(logits, axis=1)]
    found = augment.least_certain(tf.constant(logits)).numpy()
    assert found.tolist() == np.argsort(margins)[:count].tolist()
