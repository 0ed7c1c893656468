"""The highest learning rate fits the model, the optimizer and the images of a global step."""

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.optim.learning_rate import highest_rate, warmup_steps


def rate_for(images, **settings):
    return highest_rate(TrainConfig(**settings), images)


@pytest.mark.parametrize(
    ("settings", "images", "rate"),
    [
        ({}, 16, 0.0125),
        ({}, 128, 0.1),
        ({"model": "resnet_v2"}, 128, 0.1),
        ({"model": "fastnet"}, 128, 0.1),
        ({}, 1024, 0.8),
        ({}, 4096, 0.8),
        ({"model": "resnet_v2"}, 4096, 0.8),
        ({"model": "fastnet"}, 4096, 0.8),
        ({"model": "mlp"}, 64, 0.005),
        ({"model": "mlp"}, 1024, 0.02),
        ({"optimizer": "muon"}, 2048, 1.6),
        ({"optimizer": "muon"}, 4096, 1.6),
        ({"optimizer": "adam"}, 4096, 0.001),
    ],
)
def test_the_rate_grows_with_the_images_as_far_as_the_model_bears(settings, images, rate):
    assert rate_for(images, **settings) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("settings", "staleness", "rate"),
    [
        ({}, 1, 0.02),
        ({}, 4, 0.005),
        ({"model": "resnet_v2"}, 1, 0.02),
        ({"num_layers": 20}, 1, 0.044),
        ({"num_layers": 8}, 1, 0.1),
        ({"num_layers": 8}, 2, 0.055),
        ({"model": "fastnet"}, 2, 0.01),
        # As without: the MLP's is low enough, Adam's goes by no size of the gradient.
        ({"model": "mlp"}, 1, 0.01),
        ({"optimizer": "adam"}, 4, 0.001),
        ({"learning_rate": 3.0}, 1, 3.0),
    ],
)
def test_the_older_gradients_are_the_less_the_rate_grows(settings, staleness, rate):
    assert highest_rate(TrainConfig(**settings), 128, staleness) == pytest.approx(rate)


def test_a_given_rate_is_taken_as_it_is():
    assert [rate_for(images, learning_rate=3.0) for images in (16, 128, 4096)] == [3, 3, 3]


def test_a_given_rate_for_a_number_of_images_grows_with_them_without_a_limit():
    settings = {"learning_rate": 0.5, "learning_rate_batch": 100}
    assert [rate_for(images, **settings) for images in (50, 100, 1000)] == [0.25, 0.5, 5.0]


def test_warmup_epochs_count_the_steps_of_an_epoch():
    assert warmup_steps(TrainConfig(warmup_epochs=1.5), 100.0, 300) == 150


@pytest.mark.parametrize(
    ("settings", "steps"),
    [({"num_layers": 8}, 100 / 11), ({"num_layers": 110}, 50), ({"model": "mlp"}, 50)],
)
def test_a_shallow_resnet_needs_fewer_steps(settings, steps):
    assert warmup_steps(TrainConfig(**settings), 100.0, 80_000) == pytest.approx(steps)


def test_without_warmup_epochs_it_is_fifty_steps_and_at_most_a_quarter_of_the_run():
    assert [warmup_steps(TrainConfig(), 100.0, total) for total in (88, 200, 80_000)] == [
        *(22, 50, 50),
    ]
