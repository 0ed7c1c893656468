"""The host, port, devices, token and arguments of each task, and what plan prints of them."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest

from cifar10.config import flags
from launch.backends.registry import BACKENDS
from launch.cluster import show
from launch.cluster.host_list import from_hosts, on_this_machine
from launch.cluster.model import Cluster, Host
from launch.cluster.tasks import Devices, Job, make_job, with_settings, with_token
from launch.errors import LaunchError
from tests.launch.launcher import make_workdir


def host(name: str, *roles: tuple[str, int], gpus: Optional[int] = None) -> Host:
    return Host(name, name, roles, workdir="/data", gpus=gpus)


def ports_of(job: Job) -> dict[str, Optional[int]]:
    return {f"{task.name} {task.host.name}": task.port for task in job.tasks}


def test_the_first_ports_are_the_same_on_every_host() -> None:
    hosts = (
        host("a", ("master", 1), ("worker", 1), ("ps", 2)),
        host("b", ("ps", 1)),
        host("c", ("worker", 2)),
    )
    assert ports_of(make_job(Cluster(hosts))) == {
        "master/0 a": 2222,
        "worker/0 a": 2224,
        "ps/0 a": 2223,
        "ps/1 a": 2225,
        "ps/2 b": 2223,
        "worker/1 c": 2222,
        "worker/2 c": 2224,
    }


def test_ports_that_do_not_exist_are_refused() -> None:
    hosts = (host("a", ("master", 1), ("worker", 1), ("ps", 1)),)
    with pytest.raises(LaunchError, match="the tasks of a need ports up to 65,536; start lower"):
        make_job(Cluster(hosts, ports=65_534))


def test_free_ports_are_filled_in_when_they_are_known() -> None:
    cluster = on_this_machine(workers=1, ps=1)
    assert '"worker": ["127.0.0.1:free"]' in make_job(cluster).tasks[0].tf_config
    job = make_job(cluster, (), {"localhost": [41, 42, 43]})
    assert json.loads(job.tasks[0].tf_config)["cluster"] == {
        "master": ["127.0.0.1:41"],
        "ps": ["127.0.0.1:43"],
        "worker": ["127.0.0.1:42"],
    }


def test_an_evaluator_is_not_in_the_cluster() -> None:
    job = make_job(from_hosts("a,b", evaluator=True))
    evaluator = job.tasks[-2]
    assert evaluator.name == "evaluator/0"
    assert evaluator.port is None
    config = json.loads(evaluator.tf_config)
    assert sorted(config["cluster"]) == ["chief", "ps", "worker"]
    assert config["task"] == {"type": "evaluator", "index": 0}


def test_gpus_are_given_out_one_after_the_other() -> None:
    hosts = (host("a", ("master", 1), ("worker", 1), ("ps", 1), gpus=4),)
    job = make_job(Cluster(hosts, gpus_per_task=2))
    assert [task.devices for task in job.tasks] == [
        Devices((0, 1), (0, 2)),
        Devices((2, 3), (1, 2)),
        Devices(()),
    ]


def test_more_gpus_than_there_are_is_refused() -> None:
    hosts = (host("a", ("master", 1), ("worker", 1), gpus=3),)
    with pytest.raises(LaunchError, match="a has 3 GPUs, but 2 trainers with 2 each need 4"):
        make_job(Cluster(hosts, gpus_per_task=2))


def test_without_numbers_the_trainers_of_a_host_share_what_there_is() -> None:
    job = make_job(on_this_machine(workers=2, ps=1))
    assert [task.devices.share for task in job.tasks] == [(0, 3), (1, 3), (2, 3), None]
    assert job.tasks[1].devices.words() == "part 2 of 3 of the cores, the same part of the GPUs"


def job() -> Job:
    return make_job(on_this_machine(1, 1, workdir="/work"))


def test_each_run_makes_a_random_token_for_all_tasks() -> None:
    first, second = (dict(with_token(job()).cluster.environment) for _ in range(2))
    assert list(first) == ["CIFAR10_JOB_TOKEN"]
    assert re.fullmatch("[0-9a-f]{32}", first["CIFAR10_JOB_TOKEN"])
    assert first != second


def test_a_token_that_the_user_gives_is_kept() -> None:
    given, cluster = ("CIFAR10_JOB_TOKEN", "mine"), job().cluster
    by_value = replace(job(), cluster=replace(cluster, environment=(given,)))
    by_name = replace(job(), cluster=replace(cluster, pass_environment=("CIFAR10_JOB_TOKEN",)))
    assert with_token(by_value) == by_value
    assert with_token(by_name) == by_name


def test_text_shows_each_task() -> None:
    cluster = from_hosts("ip0,alice@ip1", python="python3", workdir="/data")
    text = show.as_text(make_job(cluster, ["--train-batch-size=16", "a b"]))
    assert text.startswith("1 master, 2 ps, 1 worker on 2 hosts (ssh)\n\nmaster/0 on ip0\n")
    assert (
        "worker/0 on alice@ip1\n"
        '  TF_CONFIG    {"cluster": {"master": ["ip0:2222"], "ps": ["ip0:2223", "ip1:2223"], '
        '"worker": ["ip1:2222"]}, "task": {"type": "worker", "index": 0}, "environment": "cloud"}\n'
        "  command      cd /data && python3 cifar10_main.py --train-batch-size=16 'a b'\n"
        "  devices      all cores, all GPUs\n"
    ) in text
    assert "ps/1 on alice@ip1" in text
    assert "  devices      all cores, no GPU" in text


def test_variables_are_shown_by_name_only() -> None:
    hosts = from_hosts("ip0", python="python3", workdir="/data").hosts
    cluster = Cluster(
        hosts, environment=(("OMP_NUM_THREADS", "hidden"),), pass_environment=("TOKEN",)
    )
    job = make_job(cluster)
    for shown in (show.as_text(job), _shell(cluster)):
        assert "hidden" not in shown
        assert "OMP_NUM_THREADS" in shown
        assert "TOKEN" in shown


def test_the_shell_lines_run_the_tasks(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path / "it's here")
    (workdir / "cifar10_main.py").write_text(
        "import json, os, sys\n"
        "task = json.loads(os.environ['TF_CONFIG'])['task']\n"
        "os.write(1, f\"{task['type']} {task['index']} {sys.argv[1:]}\\n\".encode())\n"
    )
    cluster = from_hosts("ip0,ip1", python=sys.executable, workdir=str(workdir))
    shown = show.as_documents(BACKENDS["ssh"].plan(make_job(cluster, ["$(touch no)", "b c"])))
    assert shown.startswith("# ip0: master/0, ps/0\ncd ")
    done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == [
        "master 0 ['$(touch no)', 'b c']",
        "ps 0 ['$(touch no)', 'b c']",
        "ps 1 ['$(touch no)', 'b c']",
        "worker 0 ['$(touch no)', 'b c']",
    ]
    assert sorted(path.name for path in workdir.iterdir()) == ["cifar10_main.py"]


def test_a_shell_fills_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "a b"))
    folder = tmp_path / "a b/it's; here"
    folder.mkdir(parents=True)
    job = make_job(from_hosts("ip0", workdir="~/it's; here"))
    for line in (show.command(job.tasks[0]), _shell(job.cluster)):
        changes = line.partition(" && ")[0]
        done = subprocess.run(["sh", "-c", f"{changes} && pwd"], capture_output=True, text=True)
        assert done.stdout == f"{folder}\n"


def test_shell_lines_need_ports_that_are_known() -> None:
    cluster = on_this_machine(workers=1, ps=1)
    with pytest.raises(LaunchError, match="--shell needs fixed ports: set `ports: 2222`"):
        _shell(cluster)


def _shell(cluster: Cluster) -> str:
    return show.as_documents(BACKENDS[cluster.backend].plan(make_job(cluster)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_becomes_its_settings_as_text(folder: Path) -> None:
    (folder / "a.yaml").write_text("lr: 2e-4\nbatch_norm: off\nlog_dir: ~\n", encoding="utf-8")
    expected = '--config={"lr": "2e-4", "batch_norm": "off", "log_dir": null}'
    assert with_settings(["--config", "a.yaml", "--seed=1"]) == [expected, "--seed=1"]
    assert with_settings(["--config=a.yaml"]) == [expected]


def test_the_training_program_reads_what_is_passed(folder: Path) -> None:
    (folder / "a.yaml").write_text("learning_rate: 2e-4\nseed: ~\n", encoding="utf-8")
    config = flags.parse(with_settings(["--config", "a.yaml", "--train-batch-size=16"]))
    assert (config.learning_rate, config.train_batch_size) == (2e-4, 16)


@pytest.mark.parametrize("words", [["--recipe=mine.json"], ["--recipe", "fast"]])
def test_a_recipe_is_a_name_and_is_passed_through(folder: Path, words: list[str]) -> None:
    (folder / "mine.json").write_text("{}", encoding="utf-8")
    assert with_settings(words) == words


def test_of_a_result_only_its_settings_are_passed(folder: Path) -> None:
    content = {"configuration": {"data_dir": "d", "kernels": "off"}, "chosen": ["kernels"]}
    (folder / "result.json").write_text(json.dumps({**content, "history": {"train": []}}), "utf-8")
    expected = '--config={"configuration": {"data_dir": "d"}}'
    assert with_settings(["--config", "result.json"]) == [expected]
    assert make_job(from_hosts("a"), (expected,)).folder("data") == "d"


@pytest.mark.parametrize(
    ("arguments", "data", "output"),
    [
        (['--config={"data_dir": "c"}', "--data_dir", "f", "--job-dir=j"], "f", "j"),
        (["--data-dir=f", '--config={"data_dir": "c", "output_dir": "o"}'], "f", "o"),
        (['--config={"data_dir": null}'], "data", "output"),
        (['--config={"work-dir": "w", "data_dir": "c"}', "--job-dir=/o"], "w/c", "/o"),
        (["--work-dir", "w", "--data-dir=gs://bucket/records"], "gs://bucket/records", "w/output"),
    ],
)
def test_the_folders_are_those_of_flags_then_config(
    arguments: list[str], data: str, output: str
) -> None:
    job = make_job(from_hosts("a"), arguments)
    assert (job.folder("data"), job.folder("output")) == (data, output)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.yaml", None, "b.yaml: No such file or directory; --config names a YAML or JSON file"),
        ("a.yaml", "seed: 1\nseed: 2\n", "a.yaml:2: seed is given twice; keep one"),
        ("a.yaml", "seed: [1]\n", "a.yaml:1: seed must be one value, not a list or a map"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(
    folder: Path, name: str, content: str, message: str
) -> None:
    if content is not None:
        (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(LaunchError) as refusal:
        with_settings(["--config", name])
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)
