"""Images in the memory of the devices that train: the same training, bit for bit."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.input.pipeline import TrainInput, load_split, training_batches, training_draws
from cifar10.input.records import RecordSet, open_records
from cifar10.step import model_fn
from cifar10.step.devices import DevicePlan
from cifar10.step.resident import ResidentSplit
from tests.cifar10 import steps
from tests.cifar10.steps import BATCH, make_plan

CONFIG = TrainConfig(
    model="mlp", train_batch_size=BATCH, crop_fill="reflect", flip="alternating", cutout=6
)


@pytest.fixture(scope="module")
def records(prepared_data: Any) -> RecordSet:
    """90 training images."""
    return open_records(str(prepared_data))


def train_input(config: TrainConfig, start: Any = 0) -> TrainInput:
    return TrainInput(
        config.train_batch_size,
        config.seed,
        crop_fill=config.crop_fill,
        flip=config.flip,
        cutout=config.cutout,
        start=start,
    )


def train(
    records: RecordSet, plan: DevicePlan, resident: bool, config: TrainConfig = CONFIG
) -> dict[str, np.ndarray]:
    """Trains 9 steps, over the end of an epoch; returns what a checkpoint would hold then."""
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        tf.train.create_global_step()
        make = training_draws if resident else training_batches
        batches = tf.data.make_initializable_iterator(make(records, train_input(config)))
        features, labels = (batches.get_next(), None) if resident else batches.get_next()
        kept = records if resident else None
        params = model_fn.ModelParams(config, plan, 90, 100, resident_records=kept)
        spec = model_fn.model_fn(features, labels, tf.estimator.ModeKeys.TRAIN, params)
        with tf.Session(config=plan.session_config) as session:
            session.run([tf.global_variables_initializer(), batches.initializer])
            for hook in spec.training_hooks:
                hook.after_create_session(session, None)
            for _ in range(9):
                session.run(spec.train_op)
            return steps.Training(spec, None, None, session).saved()


@pytest.mark.parametrize(
    ("num_towers", "settings"),
    [(1, {}), (3, {}), (2, {"num_layers": 8, "model": "resnet"})],
    ids=["one tower", "three devices", "resnet"],
)
def test_resident_images_train_the_same_weights(records, num_towers, settings):
    plan, config = make_plan(num_towers), dataclasses.replace(CONFIG, **settings)
    host, device = (train(records, plan, resident, config) for resident in (False, True))
    assert list(host) == list(device)
    assert not [name for name in device if "resident" in name]
    for name, value in host.items():
        np.testing.assert_array_equal(value, device[name], err_msg=name)


def resident_split(records: RecordSet, *devices: str) -> ResidentSplit:
    return ResidentSplit(load_split(records, "train"), 90, devices, CONFIG)


def test_each_device_makes_its_pictures_from_its_own_copy(records):
    devices = ("/cpu:0", "/cpu:1", "/cpu:0", "/cpu:1")
    expected, labels = next(iter(training_batches(records, train_input(CONFIG, 40))))
    (drawn,) = itertools.islice(training_draws(records, train_input(CONFIG, 40)), 1)
    drawn = drawn.numpy()
    config = tf.ConfigProto(device_count={"CPU": 2})
    with tf.Graph().as_default() as graph, tf.Session(config=config) as session:
        split = resident_split(records, *devices)
        split.hook().after_create_session(session, None)
        pictures = []
        for device in devices[:2]:
            with tf.device(device):
                pictures.append(split.images(drawn))
        for found in session.run(pictures):
            np.testing.assert_array_equal(found, expected)
        assert session.run(split.labels(drawn)).tolist() == labels.numpy().tolist()
        tables = [op for op in graph.get_operations() if op.type == "VarHandleOp"]
        gathers = [op for op in graph.get_operations() if op.type == "ResourceGather"]
    # 90 images of 1,024 pixels and a black pixel.
    assert [(op.name, op.device, op.get_attr("shape").dim[0].size) for op in tables] == [
        ("resident/labels", "/device:CPU:0", 90),
        ("resident/pixels_0", "/device:CPU:0", 92_161),
        ("resident/pixels_1", "/device:CPU:1", 92_161),
    ]
    assert [(op.inputs[0].op.name, op.device) for op in gathers[:2]] == [
        ("resident/pixels_0", "/device:CPU:0"),
        ("resident/pixels_1", "/device:CPU:1"),
    ]


def test_the_records_are_read_once_however_many_devices(records):
    with tf.Graph().as_default() as graph:
        resident_split(records, "/gpu:0", "/gpu:1", "/gpu:2").hook()
        types = [op.type for op in graph.get_operations()]
    assert types.count("DatasetToSingleElement") == 1
    assert types.count("VarHandleOp") == 4


def test_nothing_saves_or_initialises_the_images_but_their_hook(records):
    with tf.Graph().as_default() as graph:
        resident_split(records, "/cpu:0")
        assert not any(map(graph.get_collection, graph.get_all_collection_keys()))


def test_only_what_was_drawn_crosses_to_the_device(records):
    plan = dataclasses.replace(
        make_plan(1), tower_devices=("/gpu:0",), variable_devices=("/cpu:0",)
    )
    with tf.Graph().as_default():
        tf.train.create_global_step()
        drawn = tf.placeholder(tf.int64, [BATCH, 6])
        params = model_fn.ModelParams(CONFIG, plan, 90, 100, resident_records=records)
        spec = model_fn.model_fn(drawn, None, tf.estimator.ModeKeys.TRAIN, params)
        before = steps.ops_before(spec.train_op)
        crossing = {
            tensor
            for op in before
            if "GPU" in op.device
            for tensor in op.inputs
            if "GPU" not in tensor.op.device and tensor.dtype in (tf.uint8, tf.int64)
            if tensor.op.type != "Const"
        }
    # The numbers that were drawn, and the labels.
    assert sorted(tensor.shape.as_list() for tensor in crossing) == [[BATCH], [BATCH, 6]]
