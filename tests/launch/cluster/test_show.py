"""What `plan` prints, in each of its forms."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch.backends.registry import backend_named
from launch.cluster import show
from launch.cluster.host_list import from_hosts, on_this_machine
from launch.cluster.model import Cluster, Host
from launch.cluster.tasks import make_job
from launch.errors import LaunchError
from tests.launch.launcher import make_workdir

# The TF_CONFIG of the platform's own article for two nodes.
ARTICLE = {
    "cluster": {
        "master": ["ip0:2222"],
        "ps": ["ip0:2223", "ip1:2223"],
        "worker": ["ip1:2222"],
    },
    "task": {"type": "master", "index": 0},
    "environment": "cloud",
}


def test_two_hosts_give_the_articles_tf_config() -> None:
    job = make_job(from_hosts("ip0,ip1"), ["--train-batch-size=16"])
    assert json.loads(job.tasks[0].tf_config) == ARTICLE
    assert job.tasks[0].tf_config == json.dumps(ARTICLE)


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
    cluster = Cluster(hosts, environment=(("OMP_NUM_THREADS", "hidden"),), passed=("TOKEN",))
    job = make_job(cluster)
    for shown in (show.as_text(job), show.as_json(job), _shell(cluster)):
        assert "hidden" not in shown
        assert "OMP_NUM_THREADS" in shown
        assert "TOKEN" in shown


def test_json_is_for_programs() -> None:
    job = make_job(from_hosts("ip0,ip1", python="python3", workdir="/data"), ["a b"])
    shown = json.loads(show.as_json(job))
    assert shown["backend"] == "ssh"
    assert shown["tasks"][1] == {
        "task": "ps/0",
        "host": "ip0",
        "user": None,
        "address": "ip0",
        "port": 2223,
        "workdir": "/data",
        "argv": ["python3", "cifar10_main.py", "a b"],
        "tf_config": {**ARTICLE, "task": {"type": "ps", "index": 0}},
        "gpus": [],
        "share": None,
        "environment": [],
    }


def test_the_shell_lines_run_the_tasks(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path / "it's here")
    (workdir / "cifar10_main.py").write_text(
        "import json, os, sys\n"
        "task = json.loads(os.environ['TF_CONFIG'])['task']\n"
        "os.write(1, f\"{task['type']} {task['index']} {sys.argv[1:]}\\n\".encode())\n"
    )
    cluster = from_hosts("ip0,ip1", python=sys.executable, workdir=str(workdir))
    shown = show.as_documents(backend_named("ssh").plan(make_job(cluster, ["$(touch no)", "b c"])))
    assert shown.startswith("# ip0: master/0, ps/0\ncd ")
    done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == [
        "master 0 ['$(touch no)', 'b c']",
        "ps 0 ['$(touch no)', 'b c']",
        "ps 1 ['$(touch no)', 'b c']",
        "worker 0 ['$(touch no)', 'b c']",
    ]
    assert sorted(path.name for path in workdir.iterdir()) == ["cifar10_main.py"]


@pytest.mark.parametrize("place", ["~", "~/", "~/it's; here"])
def test_a_shell_fills_in_the_home(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "a b"))
    folder = tmp_path / f"a b{place[1:]}"
    folder.mkdir(parents=True)
    job = make_job(from_hosts("ip0", workdir=place))
    for line in (show.command(job.tasks[0]), _shell(job.cluster)):
        changes = line.partition(" && ")[0]
        done = subprocess.run(["sh", "-c", f"{changes} && pwd"], capture_output=True, text=True)
        assert done.stdout == f"{folder}\n"


def test_shell_lines_need_ports_that_are_known() -> None:
    cluster = on_this_machine(workers=1, ps=1)
    with pytest.raises(LaunchError, match="--shell needs fixed ports: set `ports: 2222`"):
        _shell(cluster)


def test_nothing_in_a_host_is_run_by_the_shell() -> None:
    host = Host("ip0", "ip0", (("master", 1),), workdir="/a; touch b", python="p y")
    line = _shell(Cluster((host,))).splitlines()[1]
    words = shlex.split(line)
    assert words[:2] == ["cd", "/a; touch b"]
    assert "p y" in words


def _shell(cluster: Cluster) -> str:
    return show.as_documents(backend_named(cluster.backend).plan(make_job(cluster)))
