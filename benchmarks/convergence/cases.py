"""What `converge` trains: each recipe, the plain command, and two small networks."""

from typing import NamedTuple

from benchmarks.arguments import training_config
from cifar10.config import flags
from cifar10.config.recipes import RECIPES
from cifar10.config.train_config import TrainConfig

ROWS = 20  # of a whole curve

# A tower a core is the default, and batch normalisation sees the images of one tower: the same
# number of towers everywhere, so that curves do not depend on the machine's cores.
_TOWERS = "--num-towers=2"
# With the settings that shape its curve, so that defaults may change without it; a low rate, since
# seeds differ less by it.
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
    "default": ("--train-batch-size=16",),
    "mlp": ("--model=mlp",),
    "resnet8": _SMALL,
}
# Images that take two cores of 2023 (AMD Zen 4) about a minute: a ResNet's go by its layers, each
# of which costs about the same. resnet8 takes seconds, since the tests train it.
_IMAGES = {"fastnet": 41_000, "mlp": 256_000}
_IMAGES_BY_LAYERS = 1_150_000
_IMAGES_OF_SMALL = 12_800


class Case(NamedTuple):
    """What is trained.

    Attributes:
      name: what `--cases` calls it.
      words: flags of cifar10_main.py, without folders, seed and logging.
      precision: as `--precision` has it.
      log_steps: how many steps each row of its curve averages.
      batch_size: images a step.
    """

    name: str
    words: tuple[str, ...]
    precision: str
    log_steps: int
    batch_size: int

    @property
    def file_name(self) -> str:
        """The name of the file that keeps its curve."""
        suffix = "" if self.precision == "fp32" else f"-{self.precision}"
        return f"{self.name}{suffix}.json"

    def steps(self, rows: int) -> tuple[int, ...]:
        """The last step of each row: the first step of a run is in none."""
        return tuple(1 + self.log_steps * row for row in range(1, rows + 1))


NAMES = tuple(_WORDS)


def find(name: str, precision: str = "fp32", more_words: tuple[str, ...] = ()) -> Case:
    """The case of that name.

    Args:
      name: one of NAMES.
      precision: `fp32` or `bf16`.
      more_words: flags that are added to its own, or replace them.

    Raises:
      BenchmarkError: they ask for another mode, or for a cluster.
      ConfigError: they are wrong, or contradict those of the case.
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
