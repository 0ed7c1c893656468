"""The command line: both spellings, every flag of the tutorial and of the platform."""

import dataclasses
import re

import pytest

from cifar10.config.flags import parse
from cifar10.config.settings import flag_name
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value", "settings"),
    [
        ("train-batch-size", "16", {"train_batch_size": 16}),
        ("use-distortion-for-training", "false", {"use_distortion_for_training": False}),
        ("job-dir", "/my_jobs", {"output_dir": "/my_jobs"}),
        ("num-gpu", "4", {"num_gpus": 4}),
    ],
)
def test_a_flag_may_be_spelt_with_dashes_or_underscores_and_its_value_apart(name, value, settings):
    for flag in (f"--{name}", f"--{name.replace('-', '_')}"):
        for argv in ([f"{flag}={value}"], [flag, value]):
            assert parse(argv) == TrainConfig(**settings), argv


def test_words_for_true_and_false():
    for word in ("true", "True", "TRUE", "t", "yes", "y", "1"):
        assert parse(["--log-device-placement", word]).log_device_placement is True, word
    # The tutorial took any word for true, "False" included.
    for word in ("false", "False", "FALSE", "f", "no", "n", "0"):
        found = parse(["--use-distortion-for-training", word]).use_distortion_for_training
        assert found is False, word


def test_a_boolean_flag_alone_is_true_and_image_files_may_stand_anywhere():
    argv = "cat.png --verbose --mode=predict dog.jpg --output-dir o my_bird.png -- --odd_name.png"
    config = parse(argv.split())
    assert config.verbose
    assert config.images == ("cat.png", "dog.jpg", "my_bird.png", "--odd_name.png")
    assert config.output_dir == "o"


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        ("--train-bach-size", "did you mean --train-batch-size?"),
        ("--zzz", "--help-all lists all flags"),
        # Words of PyTorch's and Keras' scripts, of tf_cnn_benchmarks and of the ps/worker demos.
        ("--batch-size -b", "did you mean --train-batch-size?"),
        ("--lr", "did you mean --learning-rate?"),
        ("--steps --num_batches", "did you mean --train-steps?"),
        ("--model_dir --train_dir", "did you mean --output-dir?"),
        ("--bf16 --amp", "did you mean --precision bf16?"),
        ("--variable_update", "did you mean --replication?"),
        ("--chief_hosts", "the chief is the first of --worker-hosts"),
        ("--resume", "the same command continues from the last checkpoint"),
        ("--workers", "reading needs no workers; TF_CONFIG or --worker-hosts list the tasks"),
    ],
)
def test_an_unknown_flag_is_refused_with_the_one_that_is_meant(words, way_out):
    for word in words.split():
        with pytest.raises(ConfigError) as refusal:
            parse(["--model=mlp", f"{word}=1"])
        name = word.replace("_", "-")
        assert str(refusal.value).startswith(f"there is no flag {name}=1; {way_out}"), word


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--train-steps=many", "--train-steps must be a whole number, got 'many'"),
        ("--verbose=maybe", "--verbose must be true or false, got 'maybe'"),
        ("--precision=int8", "--precision must be one of fp32, bf16, fp16, got int8"),
        ("--recipe=fats", "--recipe must be one of airbench94, .*, got fats; did you mean fast"),
        ("--mode=eval", "--mode must be one of .*export, got eval; did you mean evaluate"),
        ("--learning-rate=nan", "--learning-rate must be a finite number, got nan"),
        ("--train-epochs=1e308", "--train-epochs must be at most 1,000,000,000, got 1e"),
        ("--train-steps=" + "9" * 400, "--train-steps must be at most 2,147,483,647, got 999"),
        ("--seed=" + "9" * 400, "--seed must be at least 0 and below 2147483648, got 999"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_flag(argument, message, capsys):
    with pytest.raises(ConfigError, match=message) as refusal:
        parse([argument])
    assert "\n" not in str(refusal.value)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "argv",
    [["--output-dir=a", "--job-dir=b"], ["--train-steps=5", "--train_steps=6"]],
    ids=" ".join,
)
def test_one_setting_given_twice_with_different_values_is_refused(argv):
    with pytest.raises(ConfigError, match="contradict each other; give one"):
        parse(argv)


def _printed(capsys, word):
    with pytest.raises(SystemExit) as ended:
        parse([word])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_shows_the_flags_that_people_use(capsys):
    text = _printed(capsys, "--help")
    shown = set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE))
    settings = {flag_name(field.name) for field in dataclasses.fields(TrainConfig)}
    assert len(shown & settings) == 31  # and the image files
    assert shown - settings == {
        *("--help-all", "--version", "--print-completion", "--print-recipe", "--config")
    }
    assert {"--train-batch-size", "--recipe", "--sync"} <= shown
    assert "--muon-rate" not in text
    assert "--muon-rate" in _printed(capsys, "--help-all")


# A flag with the default of its setting, and the settings beside which it has no meaning.
DEFAULTS_WITHOUT_MEANING = [
    ("--momentum=0.9", ["--optimizer=adam"]),
    ("--muon-rate=0.24", ["--optimizer=momentum"]),
    ("--batch-norm=tower", ["--model=mlp"]),
    ("--cutout=0", ["--use-distortion-for-training=false"]),
    ("--batch-norm-decay=0.997", ["--batch-norm=off"]),
]


@pytest.mark.parametrize(("flag", "others"), DEFAULTS_WITHOUT_MEANING, ids=str)
def test_a_flag_without_meaning_is_refused_even_with_its_default(flag, others):
    parse(others)
    with pytest.raises(ConfigError, match=flag.partition("=")[0]):
        parse([*others, flag])
