"""Crops, flips and cutout of a whole batch, against one image at a time in numpy."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.input import augment
from cifar10.input.augment import words


def random_words(count):
    return words(np.arange(count, dtype=np.uint64))


def random_images(count):
    # No zeros, so that padding and cutout cannot be taken for pixels of the image.
    return np.random.default_rng(0).integers(1, 256, (count, 32, 32, 3), np.uint8)


# A square of any size, whose part outside of the image is dropped.
@pytest.mark.parametrize("cutout", [0, 1, 7, 32])
@pytest.mark.parametrize("fill", ["zeros", "reflect"])
def test_crop_flip_and_cutout_together_are_those_of_numpy(fill, cutout):
    images = random_images(40)
    drawn = augment.draw(np.arange(40)[::-1], random_words(40), 4).numpy()
    pictures = augment.render(augment.pixel_table(images), drawn, fill, cutout).numpy()
    mode = {"zeros": "constant", "reflect": "reflect"}[fill]
    for (number, down, right, flip, row, column), picture in zip(drawn.tolist(), pictures):
        expected = np.pad(images[number], [(4, 4), (4, 4), (0, 0)], mode)
        expected = expected[4 + down : 36 + down, 4 + right : 36 + right]
        expected = expected[:, ::-1].copy() if flip else expected.copy()
        first, end = cutout // 2, cutout - cutout // 2
        if cutout:
            expected[max(row - first, 0) : row + end, max(column - first, 0) : column + end] = 0
        np.testing.assert_array_equal(picture, expected)


def test_words_are_those_that_splitmix64_gives_from_0():
    # The published generator steps before it mixes, so that its first word is number 1.
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert words(np.arange(1, 5, dtype=np.uint64)).numpy().tolist() == published


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


@pytest.mark.parametrize("images", [0, 1, 100])
def test_an_answer_is_uncertain_by_its_two_likeliest_classes_alone(images):
    logits = 3 * np.random.default_rng(5).normal(size=(images, 10)).astype(np.float32)
    margins = [row[-1] - row[-2] for row in np.sort(logits, axis=1)]
    found = augment.uncertain(tf.constant(logits)).numpy()
    assert found.tolist() == [index for index, margin in enumerate(margins) if margin < 2]
