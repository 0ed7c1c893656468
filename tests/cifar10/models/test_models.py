"""The registry: ten logits each, and the published numbers of layers and parameters."""

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10 import models
from cifar10.config.train_config import TrainConfig
from cifar10.ops.layers import Layers


def build_graph(images: Any = None, layers: Any = None, **settings: Any) -> Any:
    """Builds a model in the graph at hand; returns its logits."""
    images = tf.zeros([2, 32, 32, 3]) if images is None else images
    layers = layers or Layers(training=True)
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE, auxiliary_name_scope=False):
        return models.network(TrainConfig(**settings))(layers, images)


@pytest.mark.parametrize(
    ("settings", "convolutions", "parameters"),
    [
        # He et al. 2015, table 6, counts 0.27 million for 20 layers.
        ({"num_layers": 20}, 19, 269_722),
        ({"model": "resnet_v2", "num_layers": 8}, 7, 75_290),
        # 3072 * 7 + 7 + 7 * 10 + 10.
        ({"model": "mlp", "hidden_units": 7}, 0, 21_591),
    ],
    ids=["resnet-20", "resnet_v2-8", "mlp-7"],
)
def test_a_model_has_6n_plus_2_layers_ten_logits_and_so_many_parameters(
    settings, convolutions, parameters
):
    with tf.Graph().as_default() as graph:
        logits = build_graph(**settings)
        operations = [operation.type for operation in graph.get_operations()]
        # The tutorial had eleven logits for ten classes.
        assert logits.shape.as_list() == [2, 10]
        assert logits.dtype == tf.float32
        # The last of the 6n+2 layers is dense; shortcuts have no weights and do not count.
        assert operations.count("Conv2D") == convolutions
        assert operations.count("MatMul") == (1 if convolutions else 2)
        sizes = [variable.shape.num_elements() for variable in tf.trainable_variables()]
        assert sum(sizes) == parameters


@pytest.mark.parametrize(
    ("model", "dtype"), [("resnet", tf.float16), ("fastnet", tf.bfloat16), ("mlp", tf.bfloat16)]
)
def test_low_precision_is_for_activations_alone(model, dtype):
    settings = {"model": model, **({"num_layers": 8} if model == "resnet" else {})}
    with tf.Graph().as_default() as graph:
        logits = build_graph(layers=Layers(training=True, compute_dtype=dtype), **settings)
        assert logits.dtype == tf.float32
        assert {variable.dtype.base_dtype for variable in tf.global_variables()} == {tf.float32}
        products = [op for op in graph.get_operations() if op.type in ("Conv2D", "MatMul")]
        *before, head = [op.outputs[0].dtype for op in products]
        assert (set(before), head) == ({dtype}, tf.float32)


def first_values(**settings: Any) -> dict[str, np.ndarray]:
    """What a model's variables start from."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        build_graph(**settings)
        session.run(tf.global_variables_initializer())
        values = session.run({variable.op.name: variable for variable in tf.global_variables()})
        return {name.removeprefix("model/"): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({"num_layers": 14}, 2**-0.5),  # two blocks a stage
        ({"num_layers": 8, "residual_scale": 0.25}, 0.25),
    ],
    ids=str,
)
def test_what_a_block_of_a_resnet_adds_is_scaled_at_first(settings, scale):
    values = first_values(model="resnet", **settings)
    gammas = {name: value for name, value in values.items() if name.endswith("/gamma")}
    last = {name for name in gammas if name.startswith("stage") and "batch_norm_1/" in name}
    assert len(last) == (settings["num_layers"] - 2) // 2
    for name, value in gammas.items():
        np.testing.assert_allclose(value, scale if name in last else 1.0, err_msg=name)


def test_what_a_block_of_a_resnet_v2_adds_is_scaled_in_its_last_kernel():
    values = first_values(model="resnet_v2", num_layers=8, residual_scale=0.25)
    for name, value in values.items():
        if name.startswith("stage") and name.endswith("/kernel"):
            factor = 0.25 if name.endswith("/conv_1/kernel") else 1.0
            he = (2.0 / np.prod(value.shape[:3])) ** 0.5
            np.testing.assert_allclose(value.std(), factor * he, rtol=0.1, err_msg=name)


@pytest.mark.parametrize("name", ["resnet", "resnet_v2", "fastnet"])
def test_a_model_says_whether_the_norm_of_every_kernel_has_no_effect(name: str) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        images = tf.constant(np.random.default_rng(1).standard_normal((4, 32, 32, 3), np.float32))
        depth = {"num_layers": 8} if name.startswith("resnet") else {}
        logits = build_graph(images, model=name, **depth)
        session.run(tf.global_variables_initializer())
        before = session.run(logits)
        kernels = [var for var in tf.trainable_variables() if var.shape.rank == 4]
        session.run([kernel.assign(kernel * factor).op for factor, kernel in enumerate(kernels, 2)])
        is_same = np.allclose(session.run(logits), before, atol=0.01 * np.abs(before).max())
    assert is_same == models.find(name).normalises_convolutions
