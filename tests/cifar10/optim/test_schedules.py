"""The learning rate goes by examples seen, whatever the batch size."""

import types

import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.flags import parse
from cifar10.config.train_config import TrainConfig
from cifar10.optim.schedules import highest_rate, learning_rate, warmup_steps

NUM_EXAMPLES = 45_000


def rate_at(epoch, total_epochs=400, examples_per_step=128, **settings):
    config = TrainConfig(**{"learning_rate": 0.1, "warmup_epochs": 0.0, **settings})
    params = types.SimpleNamespace(
        config=config,
        num_examples=NUM_EXAMPLES,
        total_examples=round(total_epochs * NUM_EXAMPLES),
        examples_per_step=examples_per_step,
        replication=types.SimpleNamespace(staleness=0),
    )
    rate = learning_rate(params, tf.constant(round(epoch * NUM_EXAMPLES), tf.int64))
    assert rate.dtype == tf.float32
    return float(rate)


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [
        # The last image before a stage still has the old rate. The tutorial believed in 45,000
        # images and had 40,000: its stages came 12 % late.
        (82 - 1 / NUM_EXAMPLES, 0.1),
        (82, 0.01),
        (123 - 1 / NUM_EXAMPLES, 0.01),
        (123, 0.001),
        (300 - 1 / NUM_EXAMPLES, 0.001),
        (300, 0.0002),
    ],
)
def test_the_stages_are_the_tutorials(epoch, rate):
    assert rate_at(epoch, schedule="staged") == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize(("step", "rate"), [(31_999, 0.1), (32_000, 0.01), (48_000, 0.001)])
def test_the_papers_rate_falls_to_a_tenth_from_its_steps_on(step, rate):
    config = parse(["--recipe=paper"])
    settings = {"schedule": config.schedule, "learning_rate": config.learning_rate}
    epochs = [count * 128 / NUM_EXAMPLES for count in (step, config.train_steps)]
    assert rate_at(*epochs, **settings) == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize(
    ("epoch", "cosine", "linear"),
    [(0, 0.1, 0.1), (100, 0.0853553, 0.075), (300, 0.0146447, 0.025), (400, 0, 0), (500, 0, 0)],
)
def test_cosine_and_linear_go_from_the_highest_rate_to_zero(epoch, cosine, linear):
    assert rate_at(epoch, schedule="cosine") == pytest.approx(cosine, abs=1e-7)
    assert rate_at(epoch, schedule="linear") == pytest.approx(linear, abs=1e-7)


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [(0, 0.1 * 450 / 90_000), (0.49, 0.025), (0.99, 0.05), (1.99, 0.1), (2, 0.1), (81.99, 0.1)],
)
def test_warmup_rises_by_steps_to_the_highest_rate(epoch, rate):
    # Two epochs of 100 steps; the first step takes 1/200 of the rate, the last one all of it.
    settings = {"warmup_epochs": 2.0, "schedule": "constant", "examples_per_step": 450}
    assert rate_at(epoch, **settings) == pytest.approx(rate, rel=1e-5)


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [(0, 0.02), (46, 0.06), (92, 0.1), (246, 0.1 * (1 + 0.07) / 2), (400, 0.007), (500, 0.007)],
)
def test_triangular_rises_until_a_quarter_of_the_run_and_falls_to_its_end(epoch, rate):
    # Of 400 epochs 92 are .23; the corners are .2, 1 and .07.
    assert rate_at(epoch, schedule="triangular") == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "images", "rate"),
    [
        ({}, 128, 0.1),
        ({}, 1024, 0.8),
        ({}, 4096, 0.8),
        ({"model": "fastnet"}, 4096, 0.8),
        ({"model": "mlp"}, 64, 0.005),
        ({"model": "mlp"}, 1024, 0.02),
        ({"optimizer": "muon"}, 4096, 1.6),
        ({"optimizer": "adam"}, 4096, 0.001),
        ({"learning_rate": 3.0}, 4096, 3.0),
    ],
)
def test_the_rate_grows_with_the_images_as_far_as_the_model_bears(settings, images, rate):
    assert highest_rate(TrainConfig(**settings), images) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("settings", "staleness", "rate"),
    [
        ({}, 1, 0.02),
        ({}, 4, 0.005),
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


def test_a_given_rate_for_a_number_of_images_grows_with_them_without_a_limit():
    config = TrainConfig(learning_rate=0.5, learning_rate_batch=100)
    assert [highest_rate(config, images) for images in (50, 100, 1000)] == [0.25, 0.5, 5.0]


@pytest.mark.parametrize(
    ("settings", "total_steps", "steps"),
    [
        ({"warmup_epochs": 1.5}, 300, 150),
        # Without it, fifty steps and at most a quarter of the run; a shallow ResNet needs fewer.
        ({}, 88, 22),
        ({}, 80_000, 50),
        ({"num_layers": 8}, 80_000, 100 / 11),
        ({"model": "mlp"}, 80_000, 50),
    ],
)
def test_the_steps_of_the_warmup(settings, total_steps, steps):
    found = warmup_steps(TrainConfig(**settings), 100.0, total_steps)
    assert found == pytest.approx(steps)
