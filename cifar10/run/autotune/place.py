"""Where --autotune remembers its choices: the user's cache folder. Standard library only."""

import os
import pathlib
import re

from cifar10.config.train_config import TrainConfig


def folder() -> pathlib.Path:
    """The folder of all choices; it need not exist.

    Raises:
      OSError: the user has no cache folder.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The standard says that a relative path there is to be ignored.
        cache = pathlib.Path(base) if os.path.isabs(base) else pathlib.Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError(str(error)) from error
    return cache / "cifar10-estimator" / "autotune"


def stem(config: TrainConfig) -> str:
    """How the names of the choices begin that such a run may have."""
    title = re.sub("[^a-z0-9]+", "-", config.model_title.lower())
    return f"{title}-batch-{config.train_batch_size}-{config.precision}-"


def may_be_known(config: TrainConfig) -> bool:
    """Whether there are choices of such runs, perhaps with other settings."""
    try:
        return any(folder().glob(f"{stem(config)}*.json"))
    except OSError:
        return False
