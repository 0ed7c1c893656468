"""Names and values of settings, the same on the command line and in files: read and checked."""

import math
from collections.abc import Collection, Mapping
from typing import Any, Callable, Optional

from cifar10 import models, optim
from cifar10.config.fields import FIELDS, KINDS
from cifar10.errors import ConfigError
from cifar10.settings import flag_name, flag_of

BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}
# Larger numbers have no use, and would overflow in TensorFlow or in sums of them.
_HIGHEST: dict[type, int] = {int: 2**31 - 1, float: 10**9}

# The flags of other programs -> ours. What is missing here, the nearest flag answers.
_MEANT = {
    "train-batch-size": "b batch batch-size bs",
    "train-steps": "iterations max-steps num-batches num-steps steps",
    "learning-rate": "base-lr init-lr lr",
    "weight-decay": "wd",
    "data-dir": "data-path dataset dataset-dir",
    "output-dir": "checkpoint-dir model-dir out save-dir train-dir",
    "log-steps": "display-every log-interval print-freq",
    "model": "arch",
    "num-layers": "depth",
    "optimizer nesterov": "nesterov",
    "precision bf16": "amp bf16 mixed-precision",
    "precision fp16": "fp16 use-fp16",
    "use-distortion-for-training": "augment distortions",
    "mode evaluate": "eval evaluate test",
    "init-checkpoint": "pretrained",
    "num-gpus 0": "cpu no-cuda",
    "job-name": "task-type",
    "sync": "sync-replicas",
    "replication": "variable-update",
    "variable-strategy": "local-parameter-device",
}
_NEEDLESS = {
    "the same command continues from the last checkpoint": "load restore resume start-epoch",
    "reading needs no workers; TF_CONFIG or --worker-hosts list the tasks that train": "j workers",
    "the chief is the first of --worker-hosts": "chief-hosts master-hosts",
    "TF_CONFIG names the cluster, or --ps-hosts and --worker-hosts with --job-name and "
    "--task-index": "dist-url local-rank rank world-size",
    "CUDA_VISIBLE_DEVICES chooses GPUs, and --num-gpus says how many": "device gpu",
    "`python -m data_prep` makes the records": "download use-synthetic-data",
    # Flags of earlier versions.
    "`python -m benchmarks towers` measures towers and threads": "autotune",
    "the training images are in the host's memory": "resident-data",
    "the warm-up keeps the first updates small": "worker-delay-secs",
}


def hint(word: str, known: Collection[str], spell: Callable[[str], str]) -> str:
    """Returns the end of the message about a name that no setting has; "" if nothing is similar.

    Args:
      word: the name, with dashes between its words and none in front.
      known: the names of all settings, spelt in the same way.
      spell: function that spells such a name as the user does.
    """
    for text, words in _NEEDLESS.items():
        if word in words.split():
            return f"; {text}"
    meant = [name for name, words in _MEANT.items() if word in words.split()]
    return f"; did you mean {spell(meant[0])}?" if meant else nearest(word, known, spell)


def nearest(word: str, known: Collection[str], spell: Callable[[str], str] = str) -> str:
    """Returns `; did you mean ...?` with the only known word that begins so, or the most similar.

    If no word is similar, it returns "".
    """
    import difflib  # Imported here, since only mistakes need it.

    begun = [one for one in known if word and one.startswith(word)]
    near = begun if len(begun) == 1 else difflib.get_close_matches(word[:100], known, n=1)
    return f"; did you mean {spell(near[0])}?" if near else ""


def read_value(setting: str, text: str, name: str) -> Any:
    """Returns the value of a setting that a text stands for.

    Args:
      setting: the setting's name.
      text: a value of a flag, or in a file.
      name: what messages call the setting.

    Raises:
      ConfigError: the text is no such value, or the value is not allowed.
    """
    kind = KINDS[setting]
    try:
        value = BOOLEANS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise ConfigError(f"{name} must be {_KINDS[kind]}, got {text[:40]!r}") from None
    check_value(setting, value, name)
    return value


def check_value(setting: str, value: Any, name: str) -> None:
    """Checks the value of one setting by itself.

    Args:
      setting: the setting's name.
      value: its value, which has the type of the setting.
      name: what messages call the setting.

    Raises:
      ConfigError: the value is not allowed.
    """
    flag = flag_of(FIELDS[setting])
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} must be a finite number, got {value}")
    highest = None if flag.has_upper_limit else _HIGHEST.get(type(value))
    if highest is not None and value > highest:
        raise ConfigError(f"{name} must be at most {highest:,}, got {str(value)[:40]}")
    if not flag.allows(value):
        meant = nearest(value, flag.choices) if flag.choices else ""
        raise ConfigError(f"{name} must be {flag.rule}, got {value}{meant}")


def why_pointless(setting: str, value: Any, others: Mapping[str, Any]) -> Optional[str]:
    """Says why a setting has no effect beside others; None if it has one, or is false.

    Args:
      setting: the setting's name; its field says what it needs.
      value: its value.
      others: values of those other settings that are known, by name.
    """
    if value is False:
        return None
    name, instead = flag_name(setting), flag_of(FIELDS[setting]).instead
    for other, fit in _needs(setting).items():
        if other not in others:
            continue
        flag, got = flag_name(other), others[other]
        if fit is True and not got:
            return f"{name} has no effect: {flag} is {'false' if got is False else 0}; {instead}"
        if fit is not True and got not in fit:
            return f"{name} is for {flag} {' or '.join(fit)}, got {flag} {got}; {instead}"
    return None


def _needs(setting: str) -> Mapping[str, Any]:
    """Returns `Flag.needs` of a setting, with the names of the models and the optimizers."""
    needs = dict(flag_of(FIELDS[setting]).needs)
    for name, registry in (("model", models.REGISTRY), ("optimizer", optim.REGISTRY)):
        owners = registry.owners()
        if setting in owners:
            needs = {name: owners[setting], **needs}
        elif name in needs:
            needs[name] = registry.names_where(needs[name])
    return needs
