"""What --autotune chose before on this machine: a JSON file for each thing that was measured.

They are in the user's cache folder, where two processes may write at once: a file is put in place
whole, and the last one stays.
"""

import dataclasses
import datetime
import hashlib
import json
import os
import tempfile
from typing import Any, Optional

import tensorflow as tf2

from cifar10.config.train_config import TrainConfig
from cifar10.host.cpu import count_cores, cpu_name
from cifar10.ops.kernels import library
from cifar10.run.autotune import place
from cifar10.step.cpu_setting import Setting

# All settings of these groups decide the step or where it runs, but for those that only say how.
_GROUPS, _LEFT_OUT = ("model", "devices"), ("autotune", "log_device_placement")
# The others that change the step's graph, or how much there is to do.
_OF_TRAINING = (
    "train_batch_size",
    "optimizer",
    "weight_decay",
    "decay_biases",
    "norm_bias_rate",
    "label_smoothing",
    "lookahead_steps",
)


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was chosen.

    Attributes:
      setting: towers and threads.
      speedup: how many times as fast as the rule.
      measured_at: local time, ISO 8601.
    """

    setting: Setting
    speedup: float
    measured_at: str

    @classmethod
    def now(cls, setting: Setting, speedup: float) -> "Choice":
        """A choice that was made just now."""
        time = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="minutes")
        return cls(setting, round(speedup, 3), time)


class DamagedError(Exception):
    """The file does not hold a choice."""


class Memory:
    """The remembered choice of one run on one machine.

    Args:
      config: the run's settings.
      rule: what it has without --autotune.

    Attributes:
      path: of the file.

    Raises:
      OSError: the user has no cache folder.
    """

    def __init__(self, config: TrainConfig, rule: Setting) -> None:
        self._key = json.loads(json.dumps(_key(config, rule)))
        digest = hashlib.sha256(json.dumps(self._key, sort_keys=True).encode()).hexdigest()[:12]
        self.path = place.folder() / f"{place.stem(config)}{digest}.json"

    def recall(self) -> Optional[Choice]:
        """Returns what was chosen; None if nothing was.

        Raises:
          DamagedError: the file is not one of ours.
        """
        try:
            entry = json.loads(self.path.read_text(encoding="utf-8"))
            setting = Setting(**entry["setting"])
            choice = Choice(setting, float(entry["speedup"]), str(entry["measured_at"]))
            same = entry["key"] == self._key
        except OSError:  # Where it cannot be read, `keep` says why it cannot be written either.
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(repr(error)) from error
        return choice if same else None

    def keep(self, choice: Choice) -> None:
        """Writes the file.

        Raises:
          OSError: it cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**dataclasses.asdict(choice), "key": self._key}, indent=2) + "\n"
        number, part = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(part, self.path)
        except OSError:
            os.unlink(part)
            raise


def _key(config: TrainConfig, rule: Setting) -> dict[str, Any]:
    """Everything that the choice depends on."""
    names = [
        field.name
        for field in dataclasses.fields(config)
        if (field.metadata["group"] in _GROUPS and field.name not in _LEFT_OUT)
        or field.name in _OF_TRAINING
    ]
    resolved = {"num_layers": config.layers, "hidden_units": config.units}
    return {
        "cpu": cpu_name(),
        "cores": count_cores(),
        "tensorflow": tf2.__version__,
        "kernels": library.path().name if library.path().exists() else None,
        "settings": {**{name: getattr(config, name) for name in names}, **resolved},
        "rule": dataclasses.asdict(rule),
    }
