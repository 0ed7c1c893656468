"""Parses the command line into a TrainConfig: flags override --config, it overrides the recipe."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable

from cifar10.config import settings_file
from cifar10.config.fields import ENDS, MODES, REGISTRIES
from cifar10.config.parser import make_parser
from cifar10.config.settings import BOOLEANS, Setting, flag_name, nearest, settings_of, shown
from cifar10.config.train_config import TrainConfig, needs_of, why_without_effect
from cifar10.errors import ConfigError
from cifar10_program.common_flags import arguments_of

_Values = Mapping[str, Any]
_Known = Mapping[str, Setting]
_CONFIG_HELP = "settings in YAML or JSON, such as result.json of another run; flags override them"
_CONFIG = Setting(_CONFIG_HELP, None, "job", common=True, metavar="FILE", name="config")

_RATES = ("learning_rate", "learning_rate_batch")

# The flags of other programs -> ours, or what to do instead. The nearest flag answers for the rest.
_MEANT = {
    "b batch batch-size": "train-batch-size",
    "iterations max-steps num-batches num-steps steps": "train-steps",
    "base-lr init-lr lr": "learning-rate",
    "wd": "weight-decay",
    "checkpoint-dir model-dir save-dir train-dir": "output-dir",
    "display-every log-interval print-freq": "log-steps",
    "amp bf16 mixed-precision": "precision bf16",
    "fp16 use-fp16": "precision fp16",
    "eval evaluate test": "mode evaluate",
    "variable-update": "replication",
    "local-parameter-device": "variable-strategy",
    "load restore resume": "the same command continues from the last checkpoint",
    "j workers": "reading needs no workers; TF_CONFIG or --worker-hosts list the tasks that train",
    "chief-hosts master-hosts": "the chief is the first of --worker-hosts",
    "device gpu": "CUDA_VISIBLE_DEVICES chooses GPUs, and --num-gpus says how many",
}


def parse(argv: Sequence[str], config_type: type[TrainConfig] = TrainConfig) -> TrainConfig:
    """Parses the command line.

    Flags override the file of --config, which overrides the recipe, which overrides the defaults.

    Args:
      argv: arguments after the program's name; `--data-dir` and `--data_dir` are the same.
      config_type: the class of the configuration, which may have more settings.

    Raises:
      ConfigError: a flag is unknown, a value has the wrong type or is not allowed, settings
        contradict each other, or a file of settings is wrong.
    """
    known = settings_of(config_type)
    # All words after `--` are files; argparse would take some of them for flags.
    end = argv.index("--") if "--" in argv else len(argv)
    words = _spelt(argv[:end], known)
    parser = make_parser({"config": _CONFIG, **known}, whole="--help-all" in words)
    found, unknown = parser.parse_known_intermixed_args(words)
    for word in sorted(unknown, key=lambda word: not word.startswith("-"))[:1]:
        names = [flag[2:] for argument in arguments_of(parser) for flag in argument.option_strings]
        meant = _hint(word.partition("=")[0].lstrip("-"), names, "--{}".format)
        raise ConfigError(f"there is no flag {word}{meant or '; --help-all lists all flags'}")
    texts = vars(found)
    images = (*(texts.pop("images", None) or ()), *argv[end + 1 :])
    flags = _read(texts, {"config": _CONFIG, **known})
    path, is_result = flags.pop("config", None), False
    values: _Values = flags
    files: list[tuple[str, _Values, _Values]] = []  # where from, all settings, those not overridden
    if path is not None:
        settings, is_result = _read_file(path, "--config", known)
        if is_result and "recipe" in flags:
            both = f"--recipe {flags['recipe']} does not go with {path}"
            reason = "the result of a run, which has every setting"
            raise ConfigError(f"{both}, {reason}; leave one of them out")
        kept = _not_overridden(settings, flags, known)
        files.append(("--config" if path.startswith("{") else path, settings, kept))
        values = {**kept, **flags}
    recipe = None if is_result else values.get("recipe")
    if recipe is not None:
        settings, _ = _read_file(str(settings_file.recipe_file(recipe)), "--recipe", known)
        kept = _not_overridden(settings, values, known)
        files.append((f"--recipe {recipe}", settings, kept))
        values = {**kept, **values}
    resolved = {**{name: setting.default for name, setting in known.items()}, **values}
    explicit = set(flags)
    for origin, settings, kept in files:
        effective = _check_file(origin, settings, kept, resolved, known)
        explicit.update(() if is_result or origin.startswith("--recipe") else effective)
    return config_type(**{**values, "images": images}, explicit=explicit)


def _spelt(argv: Sequence[str], known: _Known) -> list[str]:
    """Spells flags with dashes and adds the value of each boolean flag that has none.

    `--data_dir x` becomes `--data-dir x`. `--verbose cat.png` becomes `--verbose=true cat.png`: the
    word after a boolean flag is its value only if it is a spelling of true or false.
    """
    booleans = {flag_name(name) for name, setting in known.items() if setting.kind is bool}
    result = []
    for word, following in zip(argv, [*argv[1:], ""]):
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            name = name.replace("_", "-")
            if name in booleans and not equals and following.lower() not in BOOLEANS:
                equals, value = "=", "true"
        result.append(name + equals + value)
    return result


def _read(texts: Mapping[str, Sequence[str]], known: _Known) -> dict[str, Any]:
    """Returns the values of the flags by setting.

    Raises:
      ConfigError: a value is wrong, or a setting has two.
    """
    found: dict[str, Any] = {}
    for name, words in texts.items():
        flag = flag_name(name)
        for value in (known[name].read(text, flag) for text in words):
            if value != found.setdefault(name, value):
                both = f"{flag} {found[name]} and {flag} {value}"
                raise ConfigError(f"{both} contradict each other; give one")
    return found


def _read_file(path: str, flag: str, known: _Known) -> tuple[_Values, bool]:
    """Returns the settings of a file by name, and whether it is the result of a run.

    Raises:
      ConfigError: the file cannot be read, or is wrong; the message names the line.
    """
    entries, is_result = settings_file.read(path, flag)
    names = {name.replace("_", "-"): name for name in known}
    names |= {alias: name for name, setting in known.items() for alias in setting.aliases}
    found: dict[str, Any] = {}
    for location, key, text in entries:
        name = names.get(key.replace("_", "-"), "")
        if not name:
            meant = _hint(key.replace("_", "-"), names, lambda near: near.replace("-", "_"))
            meant = meant or "; --help-all lists all settings"
            raise ConfigError(f"{location}: there is no setting {key}{meant}")
        if name in found:
            raise ConfigError(f"{location}: {key} is given twice; keep one")
        if name == "images" or not isinstance(text, (str, type(None))):
            rule = "must be on the command line" if name == "images" else "must be one value"
            raise ConfigError(f"{location}: {key} {rule}")
        found[name] = None if text is None else known[name].read(text, f"{location}: {key}")
    return {name: value for name, value in found.items() if value is not None}, is_result


def _not_overridden(settings: _Values, above: _Values, known: _Known) -> _Values:
    """Returns the settings of a file or a recipe that those `above` it do not override.

    --train-steps overrides `train_epochs` as well, its alternative, and the reverse. A file serves
    all modes: if --mode is above it, what is for others is left out.
    """
    overridden = {*above, *(() if above.keys().isdisjoint(ENDS) else ENDS)}
    return {
        name: value
        for name, value in settings.items()
        if name not in overridden
        if "mode" not in above or above["mode"] in needs_of(known[name], value).get("mode", MODES)
    }


def _check_file(
    origin: str, settings: _Values, kept: _Values, resolved: _Values, known: _Known
) -> Collection[str]:
    """Checks that what is kept of a file or a recipe has an effect beside what overrides the rest.

    A default does no harm where it has none: the result of a run has every setting.

    Args:
      origin: the file or the recipe, for the message.
      settings: the values of all its settings, by name.
      kept: those that are not overridden.
      resolved: the values of all settings of the run.
      known: all settings.

    Returns:
      The names of those that have an effect.

    Raises:
      ConfigError: another value has none; the message names all settings of which this is true.
    """
    changed = None  # the model or the optimizer for which the learning rate was chosen
    for other, registry in REGISTRIES.items():
        before, now = settings.get(other, resolved[other]), resolved[other]
        if type(registry.find(before)) is not type(registry.find(now)):
            changed = other, f"is for {flag_name(other)} {before}, got {flag_name(other)} {now}"
    has_rate = "learning_rate" in kept or resolved["learning_rate"] is None
    found = {name: why_without_effect(known[name], kept[name], resolved) for name in kept}
    found |= {name: changed for name in kept if name in _RATES and has_rate}
    reasons = {name: reason for name, reason in found.items() if reason}
    refused = [name for name in reasons if kept[name] != known[name].default]
    for name in refused[:1]:
        other, reason = reasons[name]
        hint = f"take {', '.join(refused)} out of {origin}"
        if origin.startswith("--recipe"):
            recipe = origin.replace("--", "--print-")
            hint = f"give --config a copy of the recipe ({recipe}) without {', '.join(refused)}"
        if {*refused} <= {*_RATES}:
            hint = "give --learning-rate, too"
        if resolved[other] != settings.get(other, known[other].default):
            hint = f"leave {flag_name(other)} {shown(resolved[other])} out, or {hint}"
        raise ConfigError(f"{name} {shown(kept[name])} of {origin} {reason}; {hint}")
    return kept.keys() - reasons


def _hint(word: str, known: Collection[str], spell: Callable[[str], str]) -> str:
    """Returns the end of the message about a name that no setting has; "" if nothing is similar.

    Args:
      word: the name, with dashes between its words and none in front.
      known: the names of all settings, spelt in the same way.
      spell: function that spells such a name as the user does.
    """
    for words, meant in _MEANT.items():
        if word in words.split():
            is_flag = meant.split()[0] in known
            return f"; did you mean {spell(meant)}?" if is_flag else f"; {meant}"
    return nearest(word, known, spell)
