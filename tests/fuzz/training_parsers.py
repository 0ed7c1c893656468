"""The parsers of the training program that need no TensorFlow: flags and clusters."""

import json
from pathlib import Path

from cifar10.cluster.resolve import resolve
from cifar10.config import flags
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.host.console import one_line
from tests.fuzz import mutate
from tests.fuzz.parser import Parser

FLAGS = [
    b"--train-batch-size=16\0--learning-rate\0000.1\0--momentum=0.9\0--output-dir=o\0--verbose",
    b"--recipe\0fast\0--train-epochs=2.5\0--cutout=8\0--label-smoothing=0.1\0--seed=3",
    b"--mode=predict\0cat.png\0--\0--odd.png",
    b"--num-layers=20\0--num-gpus=2\0--num-towers=4\0--max-minutes=0.5\0--cluster-timeout=60",
    b"--optimizer=muon\0--muon-rate=0.2\0--weight-decay=0.001\0--warmup-epochs=1\0--log-dir=l",
    b"--worker-hosts=a:1,b:2\0--ps-hosts\0c:3\0--job-name=worker\0--task-index=0\0--sync=false",
]


def _parse_flags(data: bytes, _: Path) -> None:
    # --help and --print-recipe end the program.
    try:
        ended = mutate.exit_code(lambda: resolve(flags.parse(mutate.words_of(data)), {}))
    except ConfigError as error:  # It repeats what the user has typed.
        raise ConfigError(one_line(str(error))) from error
    assert not isinstance(ended, int) or ended == 0


_SETTINGS = [
    b"model: resnet\nnum-layers: 20\nweight_decay: 2e-3\nsync: no\nbatch_norm: off\n",
    b"recipe: fast\ntrain_epochs: 2.5 # half\ndata_dir: &a 'x y'\nlog_dir: ~\n",
    b'{"seed": 3, "cutout": 8, "use_distortion_for_training": true, "learning_rate": 0.1}',
]
_RESULT = {
    "status": "completed",
    "configuration": {"model": "mlp", "hidden_units": 9, "images": [], "num_towers": 2, "seed": 1},
    "chosen": ["num_towers"],
}


def _read_settings(name: str, data: bytes, folder: Path) -> None:
    path = folder / name
    path.write_bytes(data)
    is_result = name == "result.json"  # which no recipe may be
    for flag in ("--config",) if is_result else ("--config", "--recipe"):
        try:
            config = flags.parse([flag, str(path)])
            assert config.images == ()
        except ConfigError as error:  # It repeats what the file has.
            raise ConfigError(one_line(str(error))) from error


_TF_CONFIGS = [
    {
        "cluster": {"master": ["ip0:2222"], "ps": ["ip0:2223"], "worker": ["[::1]:2222", "b:1"]},
        "task": {"type": "worker", "index": 1},
        "environment": "cloud",
    },
    {
        "cluster": {"chief": {"0": "a:1"}, "evaluator": ["b:1"], "ps": ["c:1"]},
        "task": {"type": "evaluator", "index": "0"},
    },
    {"task": {"type": "master", "index": 0}},
]


def _resolve(data: bytes, _: Path) -> None:
    # An environment variable has no NUL; bytes that are no UTF-8 become surrogates.
    text = data.replace(b"\0", b"").decode("utf-8", "surrogateescape")
    cluster = resolve(TrainConfig(), {"TF_CONFIG": text})
    if cluster is not None:
        assert cluster.num_trainers >= 1
        assert cluster.host_share[0] < cluster.host_share[1]


def _hosts(data: bytes, _: Path) -> None:
    text = data.decode("utf-8", "surrogateescape")
    resolve(TrainConfig(worker_hosts=text, ps_hosts="p:1", job_name="worker", task_index=0), {})


PARSERS = [
    Parser("flags", lambda: FLAGS, _parse_flags, (ConfigError,), mutate.of_words),
    Parser(
        "config-yaml",
        lambda: _SETTINGS,
        lambda data, folder: _read_settings("a.yaml", data, folder),
        (ConfigError,),
        mutate.of_text,
    ),
    Parser(
        "config-json",
        lambda: [json.dumps(_RESULT).encode(), _SETTINGS[2]],
        lambda data, folder: _read_settings("result.json", data, folder),
        (ConfigError,),
        mutate.of_json,
    ),
    Parser(
        "tf-config",
        lambda: [json.dumps(one).encode() for one in _TF_CONFIGS],
        _resolve,
        (ConfigError,),
        mutate.of_json,
    ),
    Parser("hosts", lambda: [b"a:1,b:2", b"[::1]:2222"], _hosts, (ConfigError,), mutate.of_text),
]
