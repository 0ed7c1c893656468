"""No parser breaks on hostile input: it refuses it in one line, and in little memory.

The inputs are the same in each run; `FUZZ_INPUTS=10000 .venv/bin/python -m pytest tests/fuzz` tries
many more. What once broke a parser is kept in corpus/, in the folder of its name; examples/ has
valid files of each kind.
"""

import functools
import io
import json
import os
import pickle
import random
import tempfile
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from cifar10 import schema
from cifar10.cluster.resolve import resolve
from cifar10.config import flags
from cifar10.config.train_config import TrainConfig
from cifar10.errors import UserError
from cifar10.host.process import one_line
from cifar10.input import image_files, records
from cifar10.input.image_files import read_image
from cifar10.output import checkpoints, model_settings, recovery, run_file
from cifar10.output.metrics import Metrics
from data_prep import cli as data_prep
from data_prep.errors import DamageError, SourceError
from data_prep.folder import manifest
from data_prep.sources import batches, image_tree, unpickle
from data_prep.sources.dataset import check
from data_prep.sources.members import Member
from data_prep.tfrecord import read, write
from launch.agent.protocol import EVENTS, read_event
from launch.backends.kubernetes import state
from launch.backends.local import TRANSPORT
from launch.backends.registry import BACKENDS
from launch.cluster.cluster_file import read_cluster
from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.connect.connections import Connections
from launch.errors import LaunchError
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.screen.row import read_step
from launch.supervise.run import Agents
from launch.supervise.run_loop import RunLoop
from launch.supervise.supervisor import Supervisor
from launch.verbs import cli as launch
from tests.cifar10.saved import save
from tests.data_prep import made
from tests.fuzz import mutate

CORPUS, EXAMPLES = (Path(__file__).parent / name for name in ("corpus", "examples"))
ERRORS = (UserError, SourceError, LaunchError, DamageError, read.RecordError)
_INPUTS = int(os.environ.get("FUZZ_INPUTS", "10"))  # of each parser


@dataclass(frozen=True)
class Parser:
    """A function of the programs that reads what others have written.

    Attributes:
      name: name of the row, and of its folder in corpus/.
      call: a function of an input and an empty folder; an AssertionError is a wrong answer.
      form: how inputs are changed.
      examples: valid inputs, from which others are made; by default, those in examples/.
      most_bytes: the memory that Python objects may take at the same time.
    """

    name: str
    call: Callable[[bytes, Path], Any]
    form: Callable[[random.Random, bytes], bytes] = mutate.of_bytes
    examples: Callable[[], list[bytes]] = list
    most_bytes: int = 64 << 20

    @functools.cached_property
    def inputs(self) -> list[bytes]:
        """The examples."""
        return self.examples() or files_of(self.name)


def files_of(name: str) -> list[bytes]:
    """Returns the valid files of one kind."""
    return [path.read_bytes() for path in sorted((EXAMPLES / name).iterdir())]


def fault_of(parser: Parser, data: bytes) -> Optional[str]:
    """Gives an input to a parser; returns what is wrong with its answer, or None."""
    tracemalloc.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            parser.call(data, Path(folder))
    except ERRORS as error:
        message = str(error)
        if not message or "\n" in message or "\r" in message:
            return f"the message of {type(error).__name__} is not one line: {message[:300]!r}"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return f"{peak >> 20} MiB of Python objects" if peak > parser.most_bytes else None


def words_of(data: bytes) -> list[str]:
    """Returns the words of a command line as the system gives them to a program."""
    return [word.decode("utf-8", "surrogateescape") for word in data.split(b"\0")]


def exit_code(run: Callable[[], Any]) -> Any:
    """Returns what a command returns, or the exit code by which it ends the program."""
    try:
        return run()
    except SystemExit as ended:
        return ended.code


# data_prep


def _member(name: str, data: bytes) -> Member:
    return Member(name, len(data), lambda: io.BytesIO(data))


def _read_batch(form: Any, name: str, data: bytes) -> None:
    images = form.parse(_member(name, data))
    assert images.pixels.shape == (len(images), 3072)
    assert images.labels.max() <= 9


_MODES = {"PNG": "RGB L P", "JPEG": "RGB CMYK", "WEBP": "RGBA", "GIF": "P", "BMP": "1 P RGB"}


def _images() -> list[bytes]:
    return [
        made.encode(Image.new(mode, (32, 32), 7), kind)
        for kind, modes in _MODES.items()
        for mode in modes.split()
    ]


def _resize(data: bytes, _: Path) -> None:
    for resize in schema.RESIZES:
        assert len(image_tree.decode_file(data, "x.png", resize)) == 3072


def _archives() -> list[bytes]:
    """Returns archives of a tiny binary set, and of an image with its folders."""
    with tempfile.TemporaryDirectory() as name:
        folder = made.binary_folder(Path(name) / "all" / "batches").parent
        (folder / "train" / "cat").mkdir(parents=True)
        (folder / "train" / "cat" / "0.png").write_bytes(made.png())
        return [made.packed(kind, folder).read_bytes() for kind in ("w", "w:gz", "w:xz", "zip")]


def _load(data: bytes, folder: Path) -> None:
    (folder / "source").write_bytes(data)
    dataset = made.load(folder / "source")
    check(dataset)
    assert min(len(dataset.train), len(dataset.eval)) > 0


def _records() -> list[bytes]:
    labels = np.array(made.labels(2), np.uint8)
    return [write.encode_records(made.pixels(0, 2), labels).tobytes()]


def _scan(data: bytes, folder: Path) -> None:
    path = folder / "train.tfrecords"
    path.write_bytes(data)
    damages: list[str] = []
    assert all(len(image) == 3072 and 0 <= label < 10 for image, label in read.scan(path, damages))
    assert all("\n" not in damage for damage in damages)
    assert records.count_records(str(path)) >= 0


def _parse_example(data: bytes, _: Path) -> None:
    image, label = read.parse_example(data)
    assert len(image) == 3072
    assert 0 <= label <= 9


def _read_manifest(data: bytes, folder: Path) -> None:
    (folder / schema.MANIFEST_NAME).write_bytes(data)
    found = manifest.read(folder)
    if found is not None:
        found.to_json()


def _prepare(data: bytes, _: Path) -> None:
    ended = exit_code(lambda: data_prep._parse(words_of(data)))
    assert not isinstance(ended, int) or ended in (0, 2)


# Training


def _told(read: Callable[[], Any]) -> Any:
    """Calls a function whose errors repeat what the user has given, as the program prints them."""
    try:
        return read()
    except UserError as error:
        raise UserError(one_line(str(error))) from error


def _parse_flags(data: bytes, _: Path) -> None:
    # --help and --print-recipe end the program.
    ended = _told(lambda: exit_code(lambda: resolve(flags.parse(words_of(data)), {})))
    assert not isinstance(ended, int) or ended == 0


def _read_settings(data: bytes, folder: Path) -> None:
    path = folder / ("a.json" if data.startswith(b"{") else "a.yaml")
    path.write_bytes(data)
    assert _told(lambda: flags.parse(["--config", str(path)])).images == ()


def _resolve(data: bytes, _: Path) -> None:
    # An environment variable has no NUL; bytes that are no UTF-8 become surrogates.
    text = data.replace(b"\0", b"").decode("utf-8", "surrogateescape")
    cluster = resolve(TrainConfig(), {"TF_CONFIG": text})
    if cluster is not None:
        assert cluster.host_share[0] < cluster.host_share[1]


@functools.cache
def _checkpoint() -> dict[str, bytes]:
    """Returns the files of a checkpoint of step 5."""
    with tempfile.TemporaryDirectory() as folder:
        save(folder, 5)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _write_checkpoint(folder: Path) -> None:
    for name, content in _checkpoint().items():
        (folder / name).write_bytes(content)


def _read_run(data: bytes, folder: Path) -> None:
    (folder / "run.json").write_bytes(data)
    run = run_file.read(str(folder))
    if run.training is not None:
        assert isinstance(run.training["master_validates"], bool)
        run.training["status"].strip()
    applied, names = model_settings.apply(TrainConfig(output_dir=str(folder), mode="evaluate"))
    assert len(names) == 10
    applied.model_title.strip()
    Metrics(str(folder), last_step=100).save()
    _write_checkpoint(folder)
    config = TrainConfig(output_dir=str(folder), num_layers=8)
    model_settings.check_same(config, schema.CLASS_NAMES)


def _continue_metrics(data: bytes, folder: Path) -> None:
    path = folder / "metrics.jsonl"
    path.write_bytes(data)
    metrics = Metrics(str(folder), last_step=5)
    metrics.save()
    metrics.add("train", 6)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows[-1]["step"] == 6
    assert all(row["step"] <= 5 for row in rows[:-1])


def _read_best(data: bytes, folder: Path) -> None:
    best = folder / "best"
    best.mkdir()
    _write_checkpoint(best)
    (best / "best.json").write_bytes(data)
    checkpoints.best(str(folder))


def _continue(name: str, data: bytes, folder: Path) -> None:
    _write_checkpoint(folder)
    (folder / name).write_bytes(data)
    recovery.checkpoint_to_continue(str(folder), lambda line: None)


def _open_records(data: bytes, folder: Path) -> None:
    for split in schema.SPLITS:
        with (folder / f"{split}.tfrecords").open("wb") as file:
            file.truncate(6_000)
    (folder / schema.MANIFEST_NAME).write_bytes(data)
    found = records.open_records(str(folder))
    assert all(isinstance(count, int) and count > 0 for count in found.counts.values())
    assert all(float(value) > 0 for value in found.channels[1])


def _predict(data: bytes, folder: Path) -> None:
    path = folder / "x.png"
    path.write_bytes(data)
    for resize in schema.RESIZES:
        assert read_image(str(path), resize).pixels.shape == (32, 32, 3)


def _decode_in_graph(data: bytes, _: Path) -> None:
    try:
        assert image_files.decode(tf.constant(data)).shape == (32, 32, 3)
    except tf.errors.InvalidArgumentError as error:
        raise UserError(str(error).replace("\n", " ") or "refused") from error


# The launcher


def _read_cluster(data: bytes, folder: Path) -> None:
    path = folder / "lab.yaml"
    path.write_bytes(data)
    make_job(read_cluster(str(path), BACKENDS), ["--train-batch-size=16"])


def _plan(data: bytes, _: Path) -> None:
    assert exit_code(lambda: launch.main(["plan", *words_of(data)])) in (0, 1, 2)


def _agent_lines() -> list[bytes]:
    lines = files_of("agent-lines")
    assert None not in map(read_event, lines)
    return [b"".join(lines)]


def _other_lines(rng: random.Random, example: bytes) -> bytes:
    """Repeats lines, leaves some out, and changes their order and their values."""
    lines = rng.choices(example.splitlines(), k=1 + rng.randrange(12))
    return b"\n".join(mutate.of_json(rng, line) if rng.randrange(2) else line for line in lines)


def _hear(data: bytes, folder: Path) -> None:
    job = make_job(on_this_machine(1, 1), [], {"localhost": [2222, 2223, 2224]})
    run = RunFolder.create(folder, job)
    connections, link = Connections(job.cluster, run.run_id, TRANSPORT), Mock()
    connections.use("localhost", link)
    supervisor = Supervisor(job.tasks, job.cluster.limits, 0, 0.0)
    loop = RunLoop(supervisor, run, Display(io.StringIO(), live=False), connections.events, [])
    agents = Agents(supervisor, loop, connections, {task.name: {} for task in job.tasks})
    agents.start()
    for line in data.splitlines():
        event = read_event(line)
        if event is not None:
            assert event["event"] in EVENTS
            if not connections.is_current("localhost", link):
                return  # a message of another form has ended the connection
            json.dumps(event, ensure_ascii=False).encode()  # no half of a character is left
            agents.handle(("localhost", link, event))


def _progress(data: bytes, _: Path) -> None:
    line = data.decode(errors="replace")
    assert len(read_step(line)) <= len(line) + 30


def _run_file(name: str, data: bytes, folder: Path) -> None:
    run = folder / "20260131-090000-0123"
    run.mkdir(parents=True)
    (run / "run.json").write_bytes(*files_of("run-json"))
    (run / "status.json").write_bytes(*files_of("status-json"))
    (run / name).write_bytes(data)
    assert isinstance(exit_code(lambda: launch.main(["status", "--state-dir", str(folder)])), int)


TEXT, JSON = mutate.of_text, mutate.of_json
PARSERS = [
    Parser(
        "pickle", lambda data, _: unpickle.load(data, "batches.meta"),
        examples=lambda: [
            made.python2_pickle({b"label_names": [name.encode() for name in schema.CLASS_NAMES]})
        ],
    ),
    Parser(
        "python-batch", lambda data, _: _read_batch(batches.KINDS[0], "data_batch_1", data),
        examples=lambda: [
            made.batch_pickle(made.pixels(0, 2), made.labels(2)),
            *(
                pickle.dumps({"data": made.pixels(0, 2), "labels": [*np.arange(2)]}, protocol)
                for protocol in (2, 5)
            ),
        ],
    ),
    Parser(
        "binary-batch", lambda data, _: _read_batch(batches.KINDS[1], "data_batch_1.bin", data),
        examples=lambda: [bytes(3073) * 2],
    ),
    Parser(
        "class-names", lambda data, _: batches.check_meta(_member("batches.meta.txt", data)),
        TEXT, lambda: ["\n".join(schema.CLASS_NAMES).encode()],
    ),
    Parser("image", _resize, examples=_images, most_bytes=512 << 20),
    Parser("archive", _load, examples=_archives),
    Parser("tfrecords", _scan, examples=_records),
    Parser("example", _parse_example, examples=lambda: [write.encode_example(b"\7" * 3072, 3)]),
    Parser("manifest", _read_manifest, JSON),
    Parser(
        "data-prep-flags", _prepare, TEXT,
        lambda: [
            b"--source\0synthetic\0--out\0DIR\0--validation-size=5\0--shards=2\0--seed\0003",
            b"show\0DIR\0--out\0grid.png\0--split=train\0--count\0005\0--seed=0",
            b"download\0--out\0DIR\0--archive=binary\0--url\0http://[::1]/",
        ],
    ),
    Parser(
        "flags", _parse_flags, TEXT,
        lambda: [
            b"--train-batch-size=16\0--learning-rate\0000.1\0--momentum=0.9\0--output-dir=o",
            b"--recipe\0fast\0--train-epochs=2.5\0--cutout=8\0--label-smoothing=0.1\0--seed=3",
            b"--mode=predict\0cat.png\0--\0--odd.png",
            b"--num-layers=20\0--num-gpus=2\0--max-minutes=0.5\0--cluster-timeout=60",
            b"--worker-hosts=a:1,b:2\0--ps-hosts\0c:3\0--job-name=worker\0--task-index=0",
        ],
    ),
    Parser("config-file", _read_settings, TEXT),
    Parser("tf-config", _resolve, JSON),
    Parser("training-run", _read_run, JSON),
    Parser("metrics-jsonl", _continue_metrics, TEXT),
    Parser("best-json", _read_best, JSON),
    Parser(
        "checkpoint-state", functools.partial(_continue, "checkpoint"), TEXT,
        lambda: [_checkpoint()["checkpoint"]],
    ),
    Parser(
        "checkpoint-index", functools.partial(_continue, "model.ckpt-5.index"),
        examples=lambda: [_checkpoint()["model.ckpt-5.index"]],
    ),
    Parser("data-folder", _open_records, JSON, lambda: files_of("manifest")),
    Parser("predicted-image", _predict, examples=_images, most_bytes=512 << 20),
    Parser("exported-decoder", _decode_in_graph, examples=_images, most_bytes=512 << 20),
    Parser("cluster-file", _read_cluster, TEXT),
    Parser(
        "launch-flags", _plan, TEXT,
        lambda: [
            b"--hosts\0ip0,ip1\0--evaluator\0--python=/p\0--workdir\0/w",
            b"--on=slurm\0--workers=3\0--nodes\0002\0--shell",
            b"--on=kubernetes\0--workers=1",
        ],
    ),
    Parser("agent-lines", _hear, _other_lines, _agent_lines),
    Parser("progress", _progress, TEXT),
    Parser("run-json", functools.partial(_run_file, "run.json"), JSON),
    Parser("status-json", functools.partial(_run_file, "status.json"), JSON),
    Parser("kubectl-poll", lambda data, _: state.read_poll(data.decode(errors="replace")), JSON),
]  # fmt: skip
_ROWS = pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)


@_ROWS
def test_a_parser_takes_its_examples_and_what_once_broke_it(parser: Parser, tmp_path: Path) -> None:
    parser.call(parser.inputs[0], tmp_path)  # It refuses nothing: what comes after is tested, too.
    for path in sorted((CORPUS / parser.name).glob("*")):
        assert fault_of(parser, path.read_bytes()) is None, path
    for data in parser.inputs:
        assert fault_of(parser, data) is None


@_ROWS
def test_a_parser_refuses_hostile_input_in_one_line(parser: Parser) -> None:
    @settings(
        max_examples=_INPUTS,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def try_inputs(rng: random.Random) -> None:
        data = parser.form(rng, rng.choice(parser.inputs))
        fault = fault_of(parser, data)
        assert fault is None, f"{data[:200]!r}: {fault}"

    try_inputs()


def test_every_folder_of_the_corpus_has_a_parser() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= {parser.name for parser in PARSERS}
