"""What `converge` trains: each recipe, the default settings, and two small networks."""

from typing import NamedTuple

from benchmarks.arguments import training_config
from cifar10.config import flags
from cifar10.config.recipes import RECIPES
from cifar10.config.train_config import TrainConfig

ROWS = 20  # rows of a whole curve

# Batch normalisation uses the images of one tower, and the default number of towers depends on the
# machine's cores. A fixed number keeps curves comparable between machines.
_TOWERS = "--num-towers=2"
# States every setting that shapes the curve, so that the curve does not change with the defaults.
# With a low learning rate, seeds differ less.
_SMALL = (
    "--model=resnet",
    "--num-layers=8",
    "--train-batch-size=64",
    "--train-epochs=4",
    "--optimizer=momentum",
    "--learning-rate=0.03",
    "--momentum=0.9",
    "--weight-decay=2e-4",
    "--schedule=cosine",
    "--warmup-epochs=0.5",
)
_WORDS: dict[str, tuple[str, ...]] = {
    **{name: (f"--recipe={name}",) for name in RECIPES},
    "best": ("--recipe=best", "--train-batch-size=512"),  # with 2,048, a seed takes four minutes
    "default": ("--train-batch-size=16",),
    "mlp": ("--model=mlp",),
    "resnet8": _SMALL,
}
# Numbers of images that two cores of 2023 (AMD Zen 4) train in about a minute. For a ResNet, the
# number is _IMAGES_BY_LAYERS divided by its layers, each of which costs about the same. resnet8
# takes seconds, since the tests train it.
_IMAGES = {"fastnet": 41_000, "fastnet_large": 10_800, "mlp": 256_000}
_IMAGES_BY_LAYERS = 1_150_000
_IMAGES_OF_SMALL = 12_800


class Case(NamedTuple):
    """What is trained.

    Attributes:
      name: name of the case on the command line (`--cases`).
      words: flags of cifar10_main.py, without folders, seed and logging.
      precision: `fp32` or `bf16`.
      log_steps: number of steps that each row of the curve averages.
      batch_size: images per step.
    """

    name: str
    words: tuple[str, ...]
    precision: str
    log_steps: int
    batch_size: int

    @property
    def file_name(self) -> str:
        """The name of the file that holds the case's committed curve."""
        suffix = "" if self.precision == "fp32" else f"-{self.precision}"
        return f"{self.name}{suffix}.json"

    def steps(self, rows: int) -> tuple[int, ...]:
        """Returns the last step of each row; the first step of a run belongs to no row."""
        return tuple(1 + self.log_steps * row for row in range(1, rows + 1))


NAMES = tuple(_WORDS)


def find(name: str, precision: str = "fp32", more_words: tuple[str, ...] = ()) -> Case:
    """Returns the case of that name.

    Args:
      name: one of NAMES.
      precision: `fp32` or `bf16`.
      more_words: flags that are added to the case's own flags or replace them.

    Raises:
      BenchmarkError: `more_words` sets what a benchmark chooses itself, e.g. the mode or a cluster.
      ConfigError: `more_words` is invalid or contradicts the case's own flags.
    """
    own = (*_WORDS[name], _TOWERS, f"--precision={precision}")
    config = flags.parse(own)
    log_steps = max(1, round(_images(name, config) / config.train_batch_size / ROWS))
    replaced = {_flag_of(word) for word in more_words}
    words = (*(word for word in own if _flag_of(word) not in replaced), *more_words)
    tried = training_config(words)
    return Case(name, words, tried.precision, log_steps, tried.train_batch_size)


def _images(name: str, config: TrainConfig) -> int:
    if name == "resnet8":
        return _IMAGES_OF_SMALL
    if config.model in _IMAGES:
        return _IMAGES[config.model]
    return _IMAGES_BY_LAYERS // config.layers


def _flag_of(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")
