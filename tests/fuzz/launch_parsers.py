"""The parsers of the launcher: clusters, flags, what hosts and tools answer, saved runs."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from launch.agent.protocol import EVENTS, MAGIC, ORDERS, read_event, read_order
from launch.backends import tool_errors
from launch.backends.registry import KINDS
from launch.backends.slurm import commands
from launch.cluster import host_list, show
from launch.cluster.cluster_file import read_cluster
from launch.cluster.tasks import make_job
from launch.cluster.training_files import with_settings
from launch.connect import preparing
from launch.connect.link import Link
from launch.errors import HostError, LaunchError
from launch.record.output import read_progress
from launch.screen.plain import plain
from launch.verbs import cli, flags, follow, runs
from tests.fuzz import mutate
from tests.fuzz.parser import Parser
from tests.launch.cluster.full import FULL

_CLUSTERS = [
    FULL.replace("gpus: 0", "gpus: 1").encode(),  # so that its tasks can be made
    b"hosts: [node0, alice@node1, &a node2]\nports: free\n",
    b"backend: slurm\ntasks: {master: 1, worker: 2, ps: 1}\nnodes: 2\n"
    b"slurm:\n  time: 1:00:00\n  partition: gpu\n",
    b"backend: kubernetes\ntasks: {master: 1, ps: 1}\nkubernetes:\n  image: cifar10\n"
    b"  data_claim: data\n",
    b"backend: docker\nhosts: [node0]\ndocker:\n  image: cifar10\n",
]


def _read_cluster(data: bytes, folder: Path) -> None:
    path = folder / "lab.yaml"
    path.write_bytes(data)
    job = make_job(read_cluster(str(path), KINDS), ["--train-batch-size=16"])
    if KINDS[job.cluster.backend].chooses_hosts is False:
        show.as_text(job)


def _host_list(data: bytes, _: Path) -> None:
    make_job(host_list.from_hosts(data.decode("utf-8", "surrogateescape")), [])


_PLANS = [
    b"--hosts\0ip0,ip1\0--evaluator\0--python=/p\0--workdir\0/w",
    b"--on=local\0--workers\0002\0--ps=1\0--json",
    b"--on=slurm\0--workers=3\0--nodes\0002\0--shell",
    b"--on=kubernetes\0--workers=1",
]


def _plan(data: bytes, _: Path) -> None:
    code = mutate.exit_code(lambda: cli.main(["plan", *mutate.words_of(data)]))
    assert code in (0, 1, 2)


_SETTINGS = [
    b"num-layers: 20\nweight_decay: 2e-3\ndata_dir: &a 'x y'\nlog_dir: ~\n",
    b"configuration: {seed: 1, output_dir: o}\nchosen: [kernels]\nhistory: {train: []}\n",
]
_RESULT = {"configuration": {"data_dir": "d", "seed": 1}, "chosen": ["kernels"], "history": {}}


def _training_files(name: str, data: bytes, folder: Path) -> None:
    path = folder / name
    path.write_bytes(data)
    for flag in ("--config", "--recipe"):
        words = with_settings([flag, str(path)])
        make_job(host_list.from_hosts("a"), words).folder("data")


def _training_words(data: bytes, _: Path) -> None:
    make_job(host_list.from_hosts("a"), mutate.words_of(data)).folder("output")


_AGENT = b"\n".join(
    [
        b"Welcome to node0" + MAGIC.rstrip(b"\n"),
        b'{"event":"hello"}',
        b'{"event":"started","task":"worker/0"}',
        b'{"event":"lines","task":"worker/0","lines":["step 1/2"],"dropped":0}',
        b'{"event":"ports","ports":[2222]}',
        b'{"event":"exit","task":"worker/0","code":-9,"reason":"","stragglers":0,'
        b'"signals":[9],"port_taken":false}',
        b'{"event":"note","text":"x"}\n',
    ]
)


def _hear_agent(data: bytes, folder: Path) -> None:
    (folder / "answers").write_bytes(data)
    heard: list[dict[str, Any]] = []
    explain = lambda code, errors: f"exit code {code}"  # noqa: E731
    link = Link(["cat", str(folder / "answers")], explain, lambda _, one: heard.append(one))
    try:
        link.open(30)
    finally:
        link.close(30)
        assert heard
        assert heard[-1] == {"event": "lost"}
        assert all(isinstance(message["event"], str) for message in heard)


_ORDERS = b"\n".join(
    [
        b'{"do":"start","task":"worker/0","argv":["python3"],"script":null,"cwd":"/","env":{},'
        b'"masked":[],"gpus":null,"share":[0,2],"port":2222,"log":"log","last":false}',
        b'{"do":"signal","task":"worker/0","signal":15}',
        b'{"do":"ports","count":4}',
        b'{"do":"beat"}\n',
    ]
)


def _hear_lines(data: bytes, _: Path) -> None:
    for line in data.splitlines():
        order, event = read_order(line), read_event(line)
        assert order is None or order.keys() == {"do", *ORDERS[order["do"]]}
        assert event is None or event.keys() == {"event", *EVENTS[event["event"]]}
        json.dumps(event, ensure_ascii=False).encode()  # no half of a character is left


_LINES = [
    b"epoch 2.9/4  step 1,207/2,282  loss 0.328  accuracy 0.922  lr 0.0169  1,553.5 images/s",
    b"step 12  loss 2.3  24.5 img/s",
]


def _progress(data: bytes, _: Path) -> None:
    line = data.decode(errors="replace")
    found = read_progress(line)
    if found is not None:
        assert len(f"{found.step:,}/{found.total}") <= len(line) + 30
    assert not set(plain(line)) & {"\x1b", "\n", "\u202e", "\ud800"}


_SCONTROL = (
    b"JobId=7 JobName=x JobState=RUNNING Reason=None ExitCode=1:9 NodeList=m[1-2] "
    b"TimeLimit=01:00:00 PreemptTime=None Requeue=1\n"
)


def _show_job(data: bytes, _: Path) -> None:
    done = subprocess.CompletedProcess((), 0, data.decode(errors="replace"), "")
    with mock.patch.object(commands, "_run", return_value=done):
        commands.show("7").words.strip()


_ERRORS = [
    b"sbatch: error: Batch job submission failed: Invalid partition name specified\n",
    b'Error from server (NotFound): namespaces "x" not found\n',
    b"Unable to connect to the server: dial tcp: i/o timeout\n",
]


def _explain(data: bytes, _: Path) -> None:
    errors = data.decode(errors="replace")
    for tool in tool_errors._MEANINGS:
        tool_errors.meaning(tool, errors, context="c", namespace="n")
    assert "\n" not in tool_errors.last_line(errors, "nothing")


_RUN = {
    "run": "20260131-090000-0123", "backend": "ssh", "source": "--hosts", "arguments": [],
    "began": 1.0, "launcher": {"pid": 1, "started": "5", "boot": "x", "machine": "y"},
    "hosts": [{"name": "node0", "user": None, "agent_python": "python3"}],
    "tasks": [{"task": "master/0", "host": "node0", "port": 2222, "argv": ["python"]}],
}  # fmt: skip
_STATUS = {
    "time": 1.0, "exit_code": 1, "reason": "master/0 failed", "cause": "task failed",
    "tasks": [
        {
            "task": "master/0", "host": "node0", "state": "ended", "step": "1/2",
            "images_per_sec": "5", "last": "x",
        }
    ],
}  # fmt: skip


_OUTPUT = "2026-01-31T09:00:00.000Z [master/0 node0] step 1/2\n2026-01-31T09:00:01.000Z a note\n"


def _run_file(name: str, data: bytes, folder: Path) -> None:
    run = folder / "20260131-090000-0123"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps(_RUN))
    (run / "status.json").write_text(json.dumps(_STATUS))
    (run / "output.log").write_text(_OUTPUT)
    (run / name).write_bytes(data)
    options = argparse.Namespace(
        state_dir=str(folder), run=None, tasks=[], follow=False, tail=None, since=1.0, grep=None,
        json=name == "run.json",
    )  # fmt: skip
    with mock.patch.object(sys, "stdout", (folder / "out").open("w", encoding="utf-8")) as out:
        try:
            assert isinstance(runs.status(options), int)
            runs.list_runs(options)
            follow.logs(options)
        finally:
            out.close()


_EVENTS = (
    b'{"time": "2026-01-31T09:00:00.000Z", "task": "master/0", "host": "node0", "what": "start", '
    b'"reason": ""}\n'
    b'{"time": "2026-01-31T09:00:01.000Z", "task": null, "host": null, "what": "run ends", '
    b'"reason": "master/0 is done"}\n'
)
_MOMENTS = [b"10m", b"1h30m", b"2d", b"2026-01-31T12:00:00+01:00", b"2026-01-31"]


def _moment(data: bytes, _: Path) -> None:
    assert flags.moment(data.decode(errors="replace")) < 1e12


_MANIFEST = {
    "splits": {"train": {"files": [{"name": "train.tfrecords", "sha256": "ab"}]}, "eval": {}}
}


def _records(data: bytes, folder: Path) -> None:
    (folder / "train.tfrecords").write_bytes(b"x")
    (folder / "manifest.json").write_bytes(data)
    found = preparing.records(folder)
    assert set(found) <= {"train.tfrecords", "manifest.json"}
    with preparing.records_step(found, "data") as step:
        assert step.values["sums"].count("\n") <= 1


def _json(value: Any) -> list[bytes]:
    return [json.dumps(value).encode()]


PARSERS = [
    Parser(
        "cluster-file", lambda: _CLUSTERS, _read_cluster, (LaunchError,), mutate.of_text
    ),
    Parser("host-list", lambda: [b"ip0,ip1", b"a@b"], _host_list, (LaunchError,), mutate.of_text),
    Parser("launch-flags", lambda: _PLANS, _plan, (), mutate.of_words),
    Parser(
        "launched-yaml", lambda: _SETTINGS,
        lambda data, folder: _training_files("a.yaml", data, folder), (LaunchError,),
        mutate.of_text,
    ),
    Parser(
        "launched-json", lambda: _json(_RESULT),
        lambda data, folder: _training_files("a.json", data, folder), (LaunchError,),
        mutate.of_json,
    ),
    Parser(
        "launched-words",
        lambda: [b'--config={"data_dir": "d"}\0--recipe\0{"job-dir": 1}\0--output_dir\0o'],
        _training_words, (), mutate.of_words,
    ),
    Parser("agent-lines", lambda: [_ORDERS, _AGENT], _hear_lines, (), mutate.of_lines),
    Parser("agent-events", lambda: [_AGENT], _hear_agent, (HostError,), mutate.of_lines),
    Parser("records-here", lambda: _json(_MANIFEST), _records, (), mutate.of_json),
    Parser("progress", lambda: _LINES, _progress, (), mutate.of_text),
    Parser("scontrol", lambda: [_SCONTROL], _show_job, (HostError,), mutate.of_text),
    Parser("tool-errors", lambda: _ERRORS, _explain, (), mutate.of_text),
    Parser(
        "run-json", lambda: _json(_RUN), lambda data, folder: _run_file("run.json", data, folder),
        (LaunchError,), mutate.of_json,
    ),
    Parser(
        "status-json", lambda: _json(_STATUS),
        lambda data, folder: _run_file("status.json", data, folder), (LaunchError,), mutate.of_json,
    ),
    Parser(
        "events-jsonl", lambda: [_EVENTS],
        lambda data, folder: _run_file("events.jsonl", data, folder), (LaunchError,),
        mutate.of_lines,
    ),
    Parser(
        "output-log", lambda: [_OUTPUT.encode()],
        lambda data, folder: _run_file("output.log", data, folder), (LaunchError,),
        mutate.of_text,
    ),
    Parser("moment", lambda: _MOMENTS, _moment, (argparse.ArgumentTypeError,), mutate.of_text),
]  # fmt: skip
