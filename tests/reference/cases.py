"""The cases: model, update rule, towers, trainers, convolutions and precision of each run."""

import dataclasses
import zlib
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10 import kernels
from cifar10.config.train_config import TrainConfig
from cifar10.host.cpu import cpu_flags
from cifar10.step.devices import DevicePlan
from tests.cifar10 import steps
from tests.reference.rules import Settings, Values
from tests.reference.trajectory import Batch, Start

# Images per step of the whole job, and steps. A tower of 16 images uses all algorithms of
# `cifar10.ops.operations`, one of 8 does not.
BATCH, STEPS = 16, 3
# The run is far enough for lookahead and for the warm-up of the moving statistics to have an
# effect. `steps.build` trains 100 steps with 1,000 images in an epoch.
START = Start(step=96, examples_seen=96 * BATCH, total_steps=100, num_examples=1000)


class Tolerance(NamedTuple):
    """The largest errors that are allowed, as shares; `measure.Errors` describes the errors.

    Attributes:
      logits: limit for logits in training and evaluation and for the loss; decisions in the
        first step are held to half of it.
      gradients: limit for the gradients of the first step.
      updates: limit for the changes of weights and moving statistics over three steps.
      later: limit for decisions in later steps, whose weights differ, too.
    """

    logits: float
    gradients: float
    updates: float
    later: float


FP32 = Tolerance(1e-4, 1e-4, 1e-4, 1e-4)
# Adam divides a gradient by its magnitude, so rounding errors decide where the gradient is tiny.
ADAM = FP32._replace(updates=1e-3)
# A bias of 24 numbers sums the gradients of all positions, which almost cancel each other.
FASTNET = FP32._replace(updates=2e-4)
BF16 = Tolerance(0.1, 0.1, 0.2, 0.1)
# Statistics of a few images multiply rounding by more.
BF16_TOWERS = BF16._replace(later=0.2)
BF16_FASTNET = Tolerance(0.1, 0.3, 0.3, 0.1)
PAIRS = Tolerance(0.2, 0.3, 0.4, 0.2)


@dataclasses.dataclass(frozen=True)
class Case:
    """One training run of three steps.

    Attributes:
      settings: the settings of the run.
      kernels: `own` for the convolutions of `cifar10.kernels` where they fit, `own pairs` if
        these may multiply pairs of bfloat16s, or `tensorflow`.
      towers: number of towers of each trainer.
      trainers: number of synchronous trainers.
      precision: `fp32` or `bf16`.
      evaluates: whether the logits in evaluation are compared, too, after the last step.
      quick: whether `make test` runs it, not the system suite.
    """

    settings: Settings
    kernels: str = "tensorflow"
    towers: int = 1
    trainers: int = 1
    precision: str = "fp32"
    evaluates: bool = False
    quick: bool = False

    @property
    def tolerance(self) -> Tolerance:
        """The largest errors that the precision and the update rule allow."""
        if self.kernels == "own pairs":
            return PAIRS
        if self.precision == "bf16" and self.towers > 1:
            return BF16_TOWERS
        if self.precision == "bf16":
            return BF16_FASTNET if self.settings.model.startswith("fastnet") else BF16
        if self.settings.model.startswith("fastnet"):
            return FASTNET
        return ADAM if self.settings.optimizer == "adam" else FP32

    @property
    def name(self) -> str:
        """The name of the case, for tables and test names."""
        more = [f"{self.towers} towers"] * (self.towers > 1)
        more += [f"{self.trainers} trainers"] * (self.trainers > 1)
        return ", ".join(
            [self.settings.model, self.settings.optimizer, self.kernels, *more, self.precision]
        )

    @property
    def impossible(self) -> Optional[str]:
        """The reason why this machine cannot run the case; None if it can."""
        flags = cpu_flags()
        if self.kernels != "tensorflow" and kernels.why_not(flags):
            return f"--kernels own is not available: {kernels.why_not(flags)}"
        if self.precision == "bf16" and not flags & {"avx512_bf16", "amx_bf16"}:
            return "--precision bf16 needs a CPU with avx512_bf16 or amx_bf16"
        if self.kernels == "own pairs" and "avx512_bf16" not in flags:
            return "pairs of bfloat16s need a CPU with avx512_bf16"
        return None

    @property
    def config(self) -> TrainConfig:
        """The settings of each trainer, without batch normalisation's if they are the defaults."""
        left = {"batch_norm_decay": 0.997, "batch_norm_epsilon": 1e-5}
        settings = {
            name: value
            for name, value in dataclasses.asdict(self.settings).items()
            if value is not None and left.get(name) != value
        }
        if self.settings.model.startswith("resnet"):
            settings["num_layers"] = 8
        return TrainConfig(
            train_batch_size=BATCH // self.trainers,
            schedule="constant",
            warmup_epochs=0.0,
            learning_rate_batch=BATCH,
            **settings,
        )

    @property
    def plan(self) -> DevicePlan:
        """The devices of each trainer."""
        types = {"fp32": tf.float32, "bf16": tf.bfloat16}
        return dataclasses.replace(
            steps.make_plan(self.towers),
            compute_dtype=types[self.precision],
            kernels=self.kernels.split()[-1],
        )


_MOMENTUM: dict[str, Any] = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.02}
_ADAM: dict[str, Any] = {"optimizer": "adam", "learning_rate": 0.002, "weight_decay": 0.5}
_FASTNET: dict[str, Any] = {
    "model": "fastnet",
    "momentum": 0.85,
    "weight_decay": 0.02,
    "decay_biases": True,
    "norm_bias_rate": 8.0,
    "label_smoothing": 0.2,
    "batch_norm_decay": 0.6,
    # The whitening bias trains in the first two of the three steps.
    "whitening_bias_epochs": (START.examples_seen + 2 * BATCH) / START.num_examples,
}


def _made(**settings: Any) -> Settings:
    return Settings(**settings)


_V1 = _made(model="resnet", optimizer="momentum", **_MOMENTUM)
_V1_SMOOTHED = dataclasses.replace(
    _V1, optimizer="nesterov", label_smoothing=0.1, batch_norm_epsilon=1e-3, decay_biases=True
)
_V1_MUON = dataclasses.replace(_V1, optimizer="muon", muon_rate=0.05, muon_momentum=0.6)
_V2 = dataclasses.replace(_V1, model="resnet_v2", optimizer="nesterov")
_V2_ADAM = _made(model="resnet_v2", label_smoothing=0.1, **_ADAM)
_MUON = _made(
    optimizer="muon",
    learning_rate=0.02,
    muon_rate=0.1,
    muon_momentum=0.6,
    lookahead_steps=2,
    **_FASTNET,
)
_NESTEROV = _made(optimizer="nesterov", learning_rate=0.02, **_FASTNET)
_LARGE = dataclasses.replace(_NESTEROV, model="fastnet_large")
_MLP = _made(model="mlp", optimizer="momentum", **_MOMENTUM)
_MLP_ADAM = _made(model="mlp", decay_biases=True, label_smoothing=0.1, **_ADAM)

CASES = (
    Case(_V1, "own", evaluates=True),
    Case(_V1_SMOOTHED, towers=2),
    Case(_V1_SMOOTHED, "own", trainers=2, quick=True),
    Case(_V1_MUON, "own", towers=2, quick=True),
    Case(_V2, "own", towers=2, evaluates=True),
    Case(_V2_ADAM, quick=True),
    Case(_MUON, "own", evaluates=True),
    Case(_NESTEROV, trainers=2),
    Case(_LARGE, "own", evaluates=True),
    Case(_MLP, evaluates=True, quick=True),
    Case(_MLP_ADAM, towers=2),
    Case(_MLP, trainers=2),
    Case(_V1, "own", precision="bf16", evaluates=True),
    Case(_V1_SMOOTHED, towers=2, precision="bf16"),
    Case(_V2, "own", precision="bf16"),
    Case(_MUON, "own", precision="bf16", evaluates=True),
    Case(_V1, "own pairs", precision="bf16"),
    Case(_V2, "own pairs", precision="bf16"),
    Case(_MUON, "own pairs", precision="bf16"),
    Case(_MLP, precision="bf16"),
)


def draw_batches() -> list[Batch]:
    """Returns random batches: images as smooth as photographs, with a little noise, and labels."""
    random = np.random.default_rng(17)
    grid, pixels = np.arange(6), np.linspace(0, 5, 32)
    between = np.maximum(0, 1 - np.abs(pixels[:, None] - grid))  # [32, 6], linear interpolation
    batches = []
    for _ in range(STEPS):
        coarse = random.normal(128, 60, (BATCH, 6, 6, 3))
        smooth = np.einsum("ri,cj,nijk->nrck", between, between, coarse)
        images = np.clip(smooth + random.normal(0, 5, smooth.shape), 0, 255).astype(np.uint8)
        batches.append((images, random.integers(0, 10, BATCH)))
    return batches


def draw(saved: Values) -> Values:
    """Returns the values with which training begins.

    Weights and moving statistics are random, and lookahead's averages are equal to them. The
    counters are those of START. All other values, such as an optimizer's slots, stay as they are.

    Args:
      saved: the values of a checkpoint before training, by name.
    """
    values = {name: drawn(name.removesuffix("/Lookahead"), value) for name, value in saved.items()}
    for name, count in (("global_step", START.step), ("examples_seen", START.examples_seen)):
        values[name] = np.asarray(count, saved[name].dtype)
    return values


def drawn(name: str, value: Any) -> Any:
    """Returns random numbers for a weight or moving statistic; returns other values unchanged.

    Unlike in initial values, no number is exactly 0 or 1. Kernels are so small that epsilon is not
    negligible beside the variance that batch normalisation sees.

    Args:
      name: name of the value in a checkpoint; its last part decides the distribution.
      value: array that gives shape and type.
    """
    random = np.random.default_rng(zlib.crc32(name.encode()))
    kind, shape = name.rsplit("/", 1)[-1], value.shape
    if kind == "kernel":
        fan_in = value.size // shape[-1]
        result = random.normal(0, (0.25 if value.ndim == 4 else 1.0) / np.sqrt(fan_in), shape)
    elif kind == "projection":
        result = random.normal(0, 0.4, shape)
    elif kind == "gamma":
        result = random.uniform(0.5, 1.5, shape)
    elif kind == "moving_variance":
        result = random.uniform(0.01, 0.03, shape)
    elif kind in ("beta", "bias", "moving_mean"):
        result = random.normal(0, 0.3, shape)
    else:
        return value
    return result.astype(value.dtype)


def model_values(saved: Values) -> Values:
    """Returns the model's weights and moving statistics among the values of a checkpoint."""
    kinds = "kernel", "projection", "gamma", "beta", "bias", "moving_mean", "moving_variance"
    return {name: value for name, value in saved.items() if name.rsplit("/", 1)[-1] in kinds}
