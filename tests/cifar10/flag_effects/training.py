"""Settings that change what training steps do: the learning rate, weights, slots and statistics.

Slots show more than weights: with a learning rate near 0 the weights stay the same, so every step
has the same gradient, and a slot shows what the update rule does with it.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterator

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.optim import muon
from cifar10.step import model_fn, training_step
from cifar10.step.params import ModelParams
from cifar10.step.training_step import StepReport
from cifar10.weights.spec import KERNEL, Spec
from tests.cifar10.flag_effects.rows import Row
from tests.cifar10.steps import Training, make_plan

# An epoch is a step of all ten images; the run is a thousand of them.
_IMAGES, _STEPS = 10, 1_000
_PICTURES = np.random.default_rng(0).integers(0, 256, (_IMAGES, 32, 32, 3), np.uint8)
_LABEL = 3

Saved = dict[str, np.ndarray]


@contextlib.contextmanager
def _training(config: TrainConfig) -> Iterator[Training]:
    """Yields a training graph at its first step, with its session."""
    params = ModelParams(config, make_plan(1), _IMAGES, _STEPS)
    with tf.Graph().as_default(), tf.Session(config=params.plan.session_config) as session:
        tf.set_random_seed(config.seed)
        tf.train.create_global_step()
        images = tf.placeholder(tf.uint8, [_IMAGES, 32, 32, 3])
        labels = tf.placeholder(tf.int64, [_IMAGES])
        spec = model_fn.model_fn(images, labels, tf.estimator.ModeKeys.TRAIN, params)
        session.run(tf.global_variables_initializer())
        yield Training(spec, images, labels, session)


def _step(run: Training) -> tuple[float, StepReport]:
    """Trains a step on the constant batch; returns the loss and the step's report."""
    batch = (_PICTURES, np.full(_IMAGES, _LABEL, np.int64))
    report = StepReport.of(run.step(batch, training_step.report_tensors()))
    return report.loss, report


def _set(run: Training, name: str, value: int) -> None:
    (variable,) = (one for one in tf.global_variables() if one.op.name == name)
    variable.load(value, run.session)


@functools.cache
def _steps(config: TrainConfig, first_step: int = 0) -> tuple[Saved, Saved, Saved, Saved]:
    """Returns checkpoint values before three steps and after each, starting from shaken weights.

    Args:
      config: the settings.
      first_step: the global step before the first of the three.
    """
    with _training(config) as run:
        run.shake()
        _set(run, "global_step", first_step)
        saved = [run.saved()]
        for _ in range(3):
            _step(run)
            saved.append(run.saved())
    return (saved[0], saved[1], saved[2], saved[3])


def _slots(saved: Saved, variable: str) -> np.ndarray:
    """Returns the first slot of a variable, flattened."""
    names = [name for name in saved if name.startswith(f"{variable}/")]
    return saved[names[0]].ravel()


def _ratio(numbers: np.ndarray, others: np.ndarray) -> float:
    """Returns the factor f that fits numbers = f * others, by least squares."""
    return round(float(numbers @ others / (others @ others)), 4)


def _kept_a_step(one: np.ndarray, two: np.ndarray, three: np.ndarray) -> float:
    """Returns the factor f of a recurrence x -> f x + c, from three successive values."""
    return round(_ratio(three - two, two - one), 3)


def rate_at_the_start(config: TrainConfig) -> float:
    """Returns the learning rate of the first step."""
    return _rate_at(config, 0)


def rate_after_a_quarter(config: TrainConfig) -> float:
    """Returns the learning rate of the step after 250 epochs of 1,000."""
    return _rate_at(config, 250)


def _rate_at(config: TrainConfig, epoch: int) -> float:
    with _training(config) as run:
        _set(run, "examples_seen", epoch * _IMAGES)
        return round(_step(run)[1].learning_rate, 6)


def first_scales(config: TrainConfig) -> set[float]:
    """Returns the initial values of batch normalisation's scales."""
    with _training(config) as run:
        saved = run.saved()
    gammas = [value for name, value in saved.items() if name.endswith("/gamma")]
    return {round(float(number), 6) for value in gammas for number in value}


def update_rule(config: TrainConfig) -> set[str]:
    """Returns the types of the ops that update the weights, and the names of their slots."""
    with _training(config) as run:
        ops = [op for op in run.session.graph.get_operations() if op.type in _RULES]
        nesterov = any(op.type == _RULES[0] and op.get_attr("use_nesterov") for op in ops)
        names = {op.type for op in ops} | ({"nesterov"} if nesterov else set())
        return names | _names_of_slots(run.saved())


_RULES = ("ResourceApplyMomentum", "ResourceApplyAdam")


def _names_of_slots(saved: Saved) -> set[str]:
    return {name.rsplit("/", 1)[-1] for name in saved if "dense/kernel/" in name}


def kept_momentum(config: TrainConfig) -> float:
    """Returns the share of a dense kernel's slot that a step keeps."""
    return _kept_a_step(*(_slots(saved, "model/dense/kernel") for saved in _steps(config)[1:]))


def kept_momentum_of_convolutions(config: TrainConfig) -> float:
    """Returns the share of a convolution's slot that a step keeps."""
    name = "model/stage_2/block_0/conv_1/kernel"
    return _kept_a_step(*(_slots(saved, name) for saved in _steps(config)[1:]))


def step_of_convolutions(config: TrainConfig) -> float:
    """Returns the length of Muon's first step, relative to its orthogonal direction."""
    name = "model/stage_2/block_0/conv_1/kernel"
    before, after = (saved[name] for saved in _steps(config)[:2])
    unit = before.ravel() * math.sqrt(before.shape[-1]) / np.linalg.norm(before)
    with tf.Graph().as_default(), tf.Session() as session:
        spec = Spec(name, before.shape, None, KERNEL)
        direction = muon.orthogonal(tf.constant(_slots(_steps(config)[1], name)), spec)
        return _ratio(unit - after.ravel(), session.run(direction))


def kept_statistics(config: TrainConfig) -> float:
    """Returns the share of the moving means that a step late in a run keeps."""
    name = "model/stem/batch_norm/moving_mean"
    return _kept_a_step(*(saved[name] for saved in _steps(config, 10**6)[1:]))


def decay_in_slots(config: TrainConfig) -> dict[str, float]:
    """Returns, from the slots, which multiple of the weights the first gradient includes."""
    plain = dataclasses.replace(config, weight_decay=0.0, decay_biases=False)
    start, decayed = _steps(config)[:2]
    undecayed = _steps(plain)[1]
    found = {}
    for kind, name in _KINDS.items():
        added = _slots(decayed, name) - _slots(undecayed, name)
        found[kind] = _ratio(added, start[name].ravel())
    return found


_KINDS = {"kernel": "model/dense_1/kernel", "bias": "model/dense_1/bias"}


def decay_of_weights(config: TrainConfig) -> dict[str, float]:
    """Returns the share by which decay shrinks the weights in a step, divided by the rate."""
    plain = dataclasses.replace(config, weight_decay=0.0, decay_biases=False)
    start, decayed = _steps(config)[:2]
    undecayed = _steps(plain)[1]
    return {
        kind: round(
            _ratio((undecayed[name] - decayed[name]).ravel(), start[name].ravel())
            / float(config.learning_rate or math.nan),
            3,
        )
        for kind, name in _KINDS.items()
    }


def offsets_gradient(config: TrainConfig) -> dict[str, float]:
    """Returns the gradients in the slots as multiples of those with --norm-bias-rate=1."""
    plain = _steps(dataclasses.replace(config, norm_bias_rate=1.0))[1]
    found = _steps(config)[1]
    names = {"offset": "model/stem/batch_norm/beta", "scale": "model/stem/batch_norm/gamma"}
    return {kind: _ratio(_slots(found, name), _slots(plain, name)) for kind, name in names.items()}


def gradient_of_the_right_class(config: TrainConfig) -> float:
    """Returns the gradient of the right class's bias with zero weights: .1 minus the label."""
    with _training(config) as run:
        for piece in run.pieces:
            piece.load(np.zeros(piece.shape, np.float32), run.session)
        _step(run)
        return round(float(_slots(run.saved(), "model/dense_1/bias")[_LABEL]), 4)


def steps_with_a_pull(config: TrainConfig) -> list[int]:
    """Returns those of the first six steps that change lookahead's average."""
    found, name = [], "model/dense/kernel/Lookahead"
    with _training(config) as run:
        before = run.saved().get(name)
        for step in range(1, 7):
            _step(run)
            average = run.saved().get(name)
            if average is not None and (average != before).any():
                found.append(step)
            before = average
    return found


def moves_whitening_bias(config: TrainConfig) -> dict[int, bool]:
    """Returns whether a step after 0, 2 or 3 epochs changes the bias of the whitening layer."""
    found, name = {}, "model/whitening/bias"
    with _training(config) as run:
        for epoch in (0, 2, 3):
            _set(run, "examples_seen", epoch * _IMAGES)
            before = run.saved()[name]
            _step(run)
            found[epoch] = bool((run.saved()[name] != before).any())
    return found


def answers_without_looking(config: TrainConfig) -> bool:
    """Returns whether the loss is ln 10, that of equal probabilities: the input has no effect."""
    with _training(config) as run:
        return abs(_step(run)[0] - math.log(10)) < 1e-4


def _given(model: str, rate: str, *more: str) -> str:
    words = [f"--train-batch-size={_IMAGES}", f"--learning-rate-batch={_IMAGES}"]
    words += ["--schedule=constant", "--warmup-epochs=0", f"--learning-rate={rate}"]
    return " ".join([model, *words, *more])


_TINY = "1e-30"
_MLP = "--model=mlp --hidden-units=4"
_RESNET = "--model=resnet --num-layers=8 --kernels=tensorflow"


def _without(words: str, setting: str) -> str:
    flag = f"--{setting.replace('_', '-')}="
    return " ".join(word for word in words.split() if not word.startswith(flag))


_MUON = _given(_RESNET, _TINY, "--optimizer=muon --muon-rate=1e-30")

ROWS = [
    Row(
        "residual_scale",
        first_scales,
        {None: {1.0}, "0": {1.0, 0.0}},
        "--model=resnet --num-layers=8 --kernels=tensorflow",
    ),
    Row(
        "learning_rate",
        rate_at_the_start,
        {"0.25": 0.25, "0.5": 0.5},
        _without(_given(_MLP, "1"), "learning_rate"),
    ),
    Row(
        "learning_rate_batch",
        rate_at_the_start,
        {"10": 0.4, "20": 0.2, "5": 0.8},
        _without(_given(_MLP, "0.4"), "learning_rate_batch"),
    ),
    Row(
        "schedule",
        rate_after_a_quarter,
        {
            "constant": 1.0,
            "staged": 0.01,
            "cosine": 0.853553,
            "linear": 0.75,
            "triangular": 0.975844,
        },
        _without(_given(_MLP, "1"), "schedule"),
    ),
    Row(
        "warmup_epochs",
        rate_at_the_start,
        {"0": 1.0, "4": 0.25},
        _without(_given(_MLP, "1"), "warmup_epochs"),
    ),
    Row(
        "optimizer",
        update_rule,
        {
            "momentum": {"ResourceApplyMomentum", "Momentum"},
            "nesterov": {"ResourceApplyMomentum", "Momentum", "nesterov"},
            "adam": {"ResourceApplyAdam", "Adam", "Adam_1"},
        },
        _given(_MLP, _TINY),
    ),
    *(
        Row("momentum", kept_momentum, {None: 0.9, "0.5": 0.5}, words)
        for words in (
            _given(_MLP, _TINY, "--optimizer=momentum"),
            _given(_MLP, _TINY, "--optimizer=nesterov"),
        )
    ),
    Row("muon_momentum", kept_momentum_of_convolutions, {None: 0.6, "0.3": 0.3}, _MUON),
    Row(
        "muon_rate",
        step_of_convolutions,
        {None: 0.24, "0.12": 0.12},
        _given(_RESNET, _TINY, "--optimizer=muon"),
    ),
    *(
        Row(
            "weight_decay",
            decay_in_slots,
            {"0.25": {"kernel": 0.25, "bias": 0.0}, "0.5": {"kernel": 0.5, "bias": 0.0}},
            _given(_MLP, _TINY, f"--optimizer={rule}"),
        )
        for rule in ("momentum", "nesterov")
    ),
    Row(
        "weight_decay",
        decay_of_weights,
        {"0.25": {"kernel": 0.25, "bias": 0.0}, "0.5": {"kernel": 0.5, "bias": 0.0}},
        _given(_MLP, "0.1", "--optimizer=adam"),
    ),
    Row(
        "decay_biases",
        decay_in_slots,
        {
            None: {"kernel": 0.5, "bias": 0.0},
            "true": {"kernel": 0.5, "bias": 0.5},
        },
        _given(_MLP, _TINY, "--optimizer=momentum --weight-decay=0.5"),
    ),
    Row(
        "decay_biases",
        decay_of_weights,
        {None: {"kernel": 0.5, "bias": 0.0}, "true": {"kernel": 0.5, "bias": 0.5}},
        _given(_MLP, "0.1", "--optimizer=adam --weight-decay=0.5"),
    ),
    Row(
        "norm_bias_rate",
        offsets_gradient,
        {None: {"offset": 1.0, "scale": 1.0}, "64": {"offset": 64.0, "scale": 1.0}},
        _given(_RESNET, _TINY, "--optimizer=momentum"),
    ),
    Row(
        "label_smoothing",
        gradient_of_the_right_class,
        {None: -0.9, "0.2": -0.72},
        _given(_MLP, _TINY, "--optimizer=momentum"),
    ),
    Row(
        "lookahead_steps",
        steps_with_a_pull,
        {None: [], "2": [2, 4, 6], "3": [3, 6]},
        _given(_MLP, "0.01", "--optimizer=momentum"),
    ),
    Row(
        "whitening_bias_epochs",
        moves_whitening_bias,
        {None: {0: True, 2: True, 3: False}, "1": {0: True, 2: False, 3: False}},
        # The batch has one image ten times, so normalisation makes gradients of 1e10.
        _given(
            "--model=fastnet --kernels=tensorflow", "1e-12", "--optimizer=momentum --momentum=0"
        ),
    ),
    Row(
        "batch_norm_decay",
        kept_statistics,
        {None: 0.997, "0.5": 0.5},
        _given(_RESNET, _TINY, "--optimizer=momentum"),
    ),
    Row(
        "batch_norm_epsilon",
        answers_without_looking,
        {None: False, "1e9": True},
        _given(_RESNET, _TINY, "--optimizer=momentum --batch-norm=sync"),
    ),
]
