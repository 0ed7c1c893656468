"""--config: settings from YAML, JSON or a result, between flags and the recipe."""

import json

import pytest

from cifar10.config.flags import parse
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a file into the current folder and returns its name."""
    monkeypatch.chdir(tmp_path)

    def made(content, name="a.yaml"):
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return made


YAML = """\
# Each value is read as that of a flag.
model: resnet
num-layers: 20
train_steps: 80_000
weight_decay: 2e-3   # YAML takes this for text,
batch_norm: off      # this for false,
data_dir: 2024       # and this for a number.
sync: no
job_dir: runs/a
momentum:
learning_rate: ~
"""


def test_yaml_gives_settings_as_flags_do(write):
    assert parse(["--config", write(YAML)]) == TrainConfig(
        num_layers=20,
        train_steps=80_000,
        weight_decay=2e-3,
        batch_norm="off",
        data_dir="2024",
        sync=False,
        output_dir="runs/a",
    )


def test_json_gives_settings_too(write):
    content = {"num_layers": 20, "weight_decay": 2e-3, "sync": False, "log_steps": None}
    expected = TrainConfig(num_layers=20, weight_decay=2e-3, sync=False)
    assert parse(["--config", write("\ufeff" + json.dumps(content), "a.json")]) == expected
    assert parse(["--config", write(content, "a.yaml")]) == expected


def test_flags_override_the_file_and_the_file_overrides_the_recipe(write):
    path = write("recipe: fast\nmomentum: 0.5\ntrain_epochs: 3\n")
    config = parse(["--config", path])
    assert (config.recipe, config.momentum, config.train_epochs) == ("fast", 0.5, 3.0)
    assert config.train_batch_size == 2048
    config = parse(["--momentum=0.7", "--config", path, "--recipe=resnet20", "--train-steps=9"])
    assert (config.recipe, config.momentum, config.num_layers) == ("resnet20", 0.7, 20)
    assert (config.train_steps, config.train_epochs) == (9, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("num_layers: 20\nweight_decy: 1\n", "2: there is no setting weight_decy; did you mean "),
        ("batch_size: 9\n", "1: there is no setting batch_size; did you mean train_batch_size?"),
        ("num_layers: many\n", "1: num_layers must be a whole number, got 'many'"),
        ("seed: [1, 2]\n", "1: seed must be one value"),
        ("seed: 1\nseed: 1\n", "2: seed is given twice; keep one"),
        ("images: [a.png]\n", "1: images must be on the command line"),
        ("- seed: 1\n", " the file must be a mapping (`train_batch_size: 64`)"),
        ("seed: 1\n  x: 2\n", "2: not YAML: mapping values are not allowed here"),
    ],
)
def test_a_mistake_in_yaml_is_one_line_with_its_place(write, content, message):
    with pytest.raises(ConfigError) as refusal:
        parse(["--config", write(content)])
    assert str(refusal.value).startswith(f"a.yaml:{message}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", ": the file must be a mapping (`train_batch_size: 64`)"),
        ('{"seed":\n1,}', ":2: not JSON: "),
        ('{"seed": 1, "model": "mlp", "seed": 2}', ": seed is given twice; keep one"),
        pytest.param('{"a":' * 100_000, ":1: not JSON: maximum recursion", id="nested"),
    ],
)
def test_a_mistake_in_json_is_one_line(write, content, message):
    with pytest.raises(ConfigError) as refusal:
        parse(["--config", write(content, "a.json")])
    assert str(refusal.value).startswith(f"a.json{message}")


def test_a_file_that_cannot_be_read_is_named(write, tmp_path):
    def refusal(name):
        with pytest.raises(ConfigError) as found:
            parse(["--config", name])
        return str(found.value)

    way_out = "--config names a YAML or JSON file of settings"
    assert refusal("") == f"--config: No such file or directory; {way_out}"
    assert refusal(str(tmp_path)) == f"{tmp_path}: Is a directory; {way_out}"
    assert refusal(write("[" * 5_000)).startswith("a.yaml:1: not YAML: maximum recursion depth")
    assert refusal(write("#" * (257 << 10))).startswith("a.yaml: longer than 256 KiB")
    (tmp_path / "a.yaml").write_bytes(b"seed: \xff\n")
    assert "can't decode byte 0xff in position 6" in refusal("a.yaml")


# What a run of `--recipe resnet20 --seed=5` on two cores writes, in part.
RESULT = {
    "status": "completed",
    "configuration": {
        "recipe": "resnet20",
        "images": [],
        "model": "resnet",
        "num_layers": 20,
        "train_epochs": 10.0,
        "train_steps": None,
        "learning_rate": 0.1,
        "learning_rate_batch": 128,
        "optimizer": "nesterov",
        "momentum": 0.9,
        "seed": 5,
        "num_towers": 2,
        "kernels": "own",
        "job_name": "worker",
        "task_index": 0,
        "worker_hosts": "a:1,b:1",
        "output_dir": "output",
    },
    "chosen": ["num_towers", "kernels"],
    "history": {"train": [{"step": 1}]},
}


def test_a_result_runs_again_with_its_settings_and_not_with_what_was_chosen(write):
    config = parse(["--config", write(RESULT, "result.json"), "--output-dir=again"])
    assert config == TrainConfig(
        recipe="resnet20",
        num_layers=20,
        train_epochs=10.0,
        learning_rate=0.1,
        learning_rate_batch=128,
        optimizer="nesterov",
        seed=5,
        output_dir="again",
    )


def test_a_default_in_a_file_does_no_harm_where_it_has_no_effect(write):
    defaults = {"num_layers": None, "batch_norm": "tower", "momentum": 0.9, "muon_rate": 0.24}
    for content in (defaults, {"configuration": defaults}):
        config = parse(["--config", write(content, "a.json"), "--model=mlp", "--optimizer=adam"])
        assert config == TrainConfig(model="mlp", optimizer="adam")
        assert not config.is_set("momentum")
    # A file that somebody wrote asks for its defaults; the result of a run has them all.
    for content, expected in (({"sync": True}, {"sync"}), ({"configuration": {"sync": True}}, ())):
        assert parse(["--config", write(content, "a.json")]).explicit == {*expected}


def test_settings_without_effect_are_refused_with_their_file(write):
    path = write("momentum: 0.5\nmuon_rate: 0.3\nhidden_units: 9\n")
    with pytest.raises(ConfigError) as refusal:
        parse(["--config", path, "--optimizer=adam"])
    assert str(refusal.value) == (
        "momentum 0.5 of a.yaml is for --optimizer momentum or nesterov or muon, got --optimizer "
        "adam; leave --optimizer adam out, or take momentum, muon_rate, hidden_units out of a.yaml"
    )
    with pytest.raises(ConfigError, match="^muon_rate 0.3 of --config is for .*; take muon_rate o"):
        parse(['--config={"muon_rate": 0.3}'])


def test_a_learning_rate_is_for_the_model_and_the_optimizer_of_its_file(write):
    path = write("optimizer: nesterov\nlearning_rate: 0.1\nlearning_rate_batch: 128\n")
    with pytest.raises(ConfigError) as refusal:
        parse(["--config", path, "--optimizer=adam"])
    assert str(refusal.value) == (
        "learning_rate 0.1 of a.yaml is for --optimizer nesterov, got --optimizer adam; leave "
        "--optimizer adam out, or give --learning-rate, too"
    )
    config = parse(["--config", path, "--optimizer=adam", "--learning-rate=1e-3"])
    assert (config.learning_rate, config.learning_rate_batch) == (1e-3, 128)
    assert parse(["--config", path, "--optimizer=momentum"]).learning_rate == 0.1
    path = write("model: fastnet\nlearning_rate_batch: 128\n")
    with pytest.raises(ConfigError, match="^learning_rate_batch 128 of a.yaml is for --model fast"):
        parse(["--config", path, "--model=mlp"])


def test_a_result_goes_with_no_other_recipe(write):
    with pytest.raises(ConfigError, match="--recipe fast does not go with result.json"):
        parse(["--config", write(RESULT, "result.json"), "--recipe=fast"])


OF_TRAINING = """\
init_checkpoint: runs/a
profile_steps: 5:6
replication: in-graph
ps_transfer: bf16
data_dir: mine
"""


@pytest.mark.parametrize("words", [["evaluate"], ["predict", "cat.png"], ["export"]])
def test_a_file_of_a_training_serves_the_other_modes(write, words):
    config = parse(["--config", write(OF_TRAINING), "--mode", *words])
    assert config == TrainConfig(mode=words[0], images=tuple(words[1:]), data_dir="mine")
    assert config.explicit == {"mode", "data_dir"}
    with pytest.raises(ConfigError, match="--init-checkpoint b is for --mode train_and_evaluate"):
        parse(["--config", write(OF_TRAINING), "--init-checkpoint=b", "--mode", *words])
