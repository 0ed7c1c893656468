"""The folders that a run writes to; each one is tried at the start, before hours of training."""

import os
import posixpath

from cifar10.config.train_config import TrainConfig
from cifar10.host import files
from cifar10.schema import EVAL, TRAIN, VALIDATION

BEST_DIR, EXPORT_DIR = "best", "export"
PART = ".part-"  # how the name of an export of training begins until it is complete
VALIDATIONS = f"eval_{VALIDATION}"  # where Estimator writes the events of validations
EVENTS = "the folder for event files (see --log-dir)"


def open_folders(config: TrainConfig) -> None:
    """Makes the output and log folders, and tries to write there and to the folders in them.

    Of those, the ones that do not exist are made later, by what writes there. TensorFlow's writer
    of event files does not tell of a folder that it cannot write to.

    Raises:
      ConfigError: a folder cannot be made or written to.
    """
    made = {config.log_path: "--log-dir", config.output_path: "--output-dir"}
    inside = {config.log_folder(name): EVENTS for name in (TRAIN, EVAL, VALIDATIONS)}
    inside[posixpath.join(config.output_path, VALIDATIONS)] = EVENTS
    inside[posixpath.join(config.output_path, BEST_DIR)] = "the folder for the best checkpoint"
    inside[posixpath.join(config.output_path, EXPORT_DIR)] = "the folder for exports"
    for path, name in {**made, **inside}.items():
        if path in made or files.exists(path) or os.path.islink(path):
            files.require_writable(path, name)
