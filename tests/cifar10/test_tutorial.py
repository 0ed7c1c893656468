"""The command lines of tensorflow's models/tutorials/image/cifar10_estimator."""

import json
import shutil

import pytest

import generate_cifar10_tfrecords
from cifar10.cluster.resolve import notes, resolve
from cifar10.config.flags import parse
from data_prep import commands
from tests.data_prep import made

ALONE = "changes nothing: this process trains alone"
CLUSTER = {"master": ["master-ip:8000"], "ps": ["ps-ip:8000"], "worker": ["worker-ip:8000"]}
PLACES = "--data-dir=gs://path/cifar-10-data --job-dir=gs://path/model_dir/"

# The README's commands: (task of TF_CONFIG, arguments, notes).
COMMANDS = [
    (None, "--data-dir=d --job-dir=/tmp/cifar10 --num-gpus=0 --train-steps=1000", []),
    (None, "--data-dir=d --job-dir=/tmp/cifar10 --variable-strategy GPU --num-gpus=2", []),
    ("master", f"{PLACES} --num-gpus=4 --train-steps=40000 --sync --num-workers=2", []),
    ("worker", f"{PLACES} --num-gpus=4 --train-steps=40000 --sync", []),
    ("ps", "--job-dir=gs://path/model_dir/", []),
    # Its TFJob: a master, two workers and a ps.
    (
        "worker",
        f"{PLACES} --num-gpus=4 --train-steps=10000 --sync --train-batch-size=256 "
        "--learning-rate=0.8 --eval-batch-size=200",
        [],
    ),
    # Every flag of its cifar10_main.py.
    (
        None,
        "--data-dir=data --job-dir=job --variable-strategy=CPU --num-gpus=0 --num-layers=8 "
        "--train-steps=3 --train-batch-size=10 --eval-batch-size=5 --momentum=0.9 "
        "--weight-decay=2e-4 --learning-rate=0.1 --use-distortion-for-training=True --sync "
        "--num-intra-threads=1 --num-inter-threads=1 --data-format=channels_last "
        "--log-device-placement --batch-norm-decay=0.997 --batch-norm-epsilon=1e-5 --num-workers=2",
        [f"note: --sync {ALONE}", f"note: --num-workers 2 {ALONE}"],
    ),
]


@pytest.mark.parametrize(("task_type", "words", "found"), COMMANDS)
def test_every_command_of_the_tutorials_readme_is_accepted(task_type, words, found):
    task = {"type": task_type, "index": 0}
    tf_config = {
        "cluster": CLUSTER,
        "task": task,
        "model_dir": "gs://path/model_dir/",
        "environment": "cloud",
    }
    environ = {"TF_CONFIG": json.dumps(tf_config)} if task_type else {}
    config = parse(words.split())
    cluster = resolve(config, environ)
    assert (cluster and cluster.label) == (task_type and f"{task_type}/0")
    assert notes(config, cluster) == found


def test_the_tutorials_script_downloads_the_archive_once_and_converts_it(tmp_path, monkeypatch):
    source = made.python_folder(tmp_path / "made" / "cifar-10-batches-py")
    archive = made.tar(tmp_path / "made" / "cifar-10-python.tar.gz", source)
    fetched = []

    def fetch(published, folder, url):
        fetched.append((published.name, str(folder)))
        folder.mkdir(parents=True)
        return shutil.copy(archive, folder / published.name)

    monkeypatch.setattr(commands, "fetch", fetch)
    data = tmp_path / "cifar-10-data"
    for _ in range(2):
        assert generate_cifar10_tfrecords.main([f"--data-dir={data}"]) == 0
    assert fetched == [("cifar-10-python.tar.gz", str(data))]
    assert {path.name for path in data.glob("*.tfrecords")} == {
        "train.tfrecords",
        "validation.tfrecords",
        "eval.tfrecords",
    }
