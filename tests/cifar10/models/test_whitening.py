"""The projection that fastnet's first layer takes from the training images."""

import numpy as np
import pytest

from cifar10 import models
from cifar10.models.fastnet import PROJECTION, whitening_projection


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Images whose neighbouring pixels and channels go together, as in photographs."""
    random = np.random.default_rng(0)
    coarse = random.standard_normal((200, 9, 9, 3)).repeat(4, axis=1).repeat(4, axis=2)
    mixed = coarse @ random.standard_normal((3, 3)) + 0.3 * random.standard_normal((200, 36, 36, 3))
    return mixed[:, 2:34, 2:34].astype(np.float32)


def outputs(images: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The convolution by hand: one row an image and place, one column a filter."""
    size = kernel.shape[0]
    side = 32 - size + 1
    found = np.zeros((len(images), side, side, kernel.shape[-1]))
    for row in range(size):
        for column in range(size):
            part = images[:, row : row + side, column : column + side]
            found += part @ kernel[row, column]
    return found.reshape(-1, kernel.shape[-1])


@pytest.mark.parametrize("size", [2, 3])
def test_outputs_are_uncorrelated_and_have_variance_1(images, size):
    kernel = whitening_projection(images, size)
    half = 3 * size * size
    assert kernel.shape == (size, size, 3, 2 * half)
    assert kernel.dtype == np.float32
    rows = outputs(images, kernel)[:, :half]
    np.testing.assert_allclose(rows.T @ rows / len(rows), np.eye(half), atol=0.01)
    before = outputs(images, np.eye(half).reshape(size, size, 3, half))
    covariance = before.T @ before / len(before)
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() > 0.5


def test_what_does_not_vary_is_not_blown_up():
    kernel = whitening_projection(np.ones((3, 32, 32, 3), np.float32), 2)
    assert np.abs(kernel).max() <= 1 / np.sqrt(5e-4)


def test_fastnets_projection_is_made_from_5000_images(images):
    asked = []

    def sample(count):
        asked.append(count)
        return images

    values = models.find("fastnet").first_values(sample)
    assert asked == [5000]
    assert list(values) == [PROJECTION]
    np.testing.assert_array_equal(values[PROJECTION], whitening_projection(images, 2))


def test_other_models_need_nothing_of_the_data():
    for name in ("resnet", "resnet_v2", "mlp"):
        assert models.find(name).first_values(pytest.fail) == {}
