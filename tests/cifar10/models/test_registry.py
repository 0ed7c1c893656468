"""Models by name, one from outside the tree among them."""

from collections.abc import Iterator
from typing import Any

import pytest

from cifar10 import models
from cifar10.config import flags
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.models.base import Layers, Model, Network, Rate


class Linear(Model):
    """A model with no layer but the last."""

    name = "linear"
    convolves = normalises = normalises_convolutions = False

    def title(self, config: Any) -> str:
        return "linear"

    def network(self, config: Any) -> Network:
        def network(layers: Layers, images: Any) -> Any:
            return layers.dense(layers.flatten(images), 10)

        return network

    def rate(self, config: Any) -> Rate:
        return Rate(0.004, 128)

    def shape(self, config: Any) -> dict[str, Any]:
        return {}


@pytest.fixture
def linear() -> Iterator[None]:
    models.register(Linear())
    yield
    models.unregister("linear")


def test_a_flag_can_name_every_model_of_the_registry(linear: None) -> None:
    assert list(models.NAMES)[-2:] == ["mlp", "linear"]
    assert [flags.parse(["--model", name]).model for name in models.NAMES] == list(models.NAMES)
    with pytest.raises(ValueError, match="model linear exists already"):
        models.register(Linear())


def test_a_model_that_forgets_something_is_refused_by_its_name() -> None:
    words = {method: getattr(Linear, method) for method in ("title", "network", "rate")}
    with pytest.raises(TypeError, match=r"class Forgets .*shape"):
        type("Forgets", (Model,), {**words, "name": "forgets"})()


def test_a_model_says_which_settings_are_not_for_it(linear: None) -> None:
    for words, rule in (
        (["--num-layers=8"], "--num-layers 8 is for --model resnet or resnet_v2, got --model lin"),
        (["--hidden-units=8"], "--hidden-units 8 is for --model mlp, got --model linear"),
        (
            ["--batch-norm=off"],
            "--batch-norm off is for --model resnet or resnet_v2 or fastnet or fastnet_large, ",
        ),
        (
            ["--data-format=channels_last"],
            "--data-format channels_last is for --model resnet or resnet_v2 or fastnet or ",
        ),
    ):
        with pytest.raises(ConfigError) as refusal:
            flags.parse(["--model=linear", *words])
        assert str(refusal.value).startswith(rule)


def test_settings_in_force_have_no_gap() -> None:
    def resolved(**settings: Any) -> Any:
        config = TrainConfig(**settings)
        return models.find(config.model).resolved(config)

    assert resolved() == {"num_layers": 44, "residual_scale": 7**-0.5}
    assert resolved(num_layers=8, residual_scale=0.0) == {"num_layers": 8, "residual_scale": 0.0}
    assert resolved(model="mlp") == {"hidden_units": 100}
    assert resolved(model="fastnet") == {}
