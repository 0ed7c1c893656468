"""Descriptions of clusters, in a file or without: what they can say, and errors for the rest."""

import re
from pathlib import Path
from typing import Optional

import pytest

from launch.backends.registry import BACKENDS
from launch.cluster import host_list
from launch.cluster.cluster_file import read_cluster
from launch.cluster.host_list import on_chosen_hosts
from launch.cluster.model import FREE_PORTS, Cluster, Host, Limits
from launch.errors import LaunchError
from tests.launch.backends.samples import read

PAGE = Path(__file__).parents[3] / "docs" / "launch.md"

# Nearly every key.
FULL = """\
backend: ssh
user: alice
python: .venv/bin/python
workdir: /data
gpus: 2
gpus_per_task: 1
ports: 3000
restarts: 3
hosts:
  - name: node0
    address: 10.0.0.1
    roles: {chief: 1, ps: 1}
  - {name: node1, user: bob, python: /opt/python, agent_python: python3.11, gpus: 0,
     roles: {evaluator: 1}}
environment: {OMP_NUM_THREADS: 2, SWITCH: on}
pass_environment: [API_TOKEN]
limits: {start_secs: 30, idle_secs: off, lease_secs: 2.5}
"""

ALL_HERE = "local runs all tasks on this machine; list localhost alone, or run on ssh"


def test_the_python_of_all_hosts_counts_for_one_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is the launcher's own default, which does not hold in another folder."""
    monkeypatch.setattr(host_list, "default_python", lambda: ".venv/bin/python")
    hosts = "hosts: [a, {name: b, workdir: /srv/b}]\n"
    said = read(tmp_path, f"python: .venv/bin/python\nworkdir: /srv/a\n{hosts}")
    assert [host.python for host in said.hosts] == [".venv/bin/python"] * 2
    unsaid = read(tmp_path, f"workdir: /srv/a\n{hosts}")
    assert [host.python for host in unsaid.hosts] == ["python3"] * 2


def test_a_cluster_has_a_limited_number_of_tasks(tmp_path: Path) -> None:
    """Each task's TF_CONFIG lists all tasks, so a million would not fit into any memory."""
    text = "hosts:\n- {name: a, roles: {master: 1, worker: 1000}}\n"
    assert read(tmp_path, f"{text}- {{name: b, roles: {{ps: 999}}}}\n").count("ps") == 999
    with pytest.raises(LaunchError, match="2,001 tasks: a cluster has at most 2,000, since each"):
        read(tmp_path, f"{text}- {{name: b, roles: {{ps: 1000}}}}\n")


def test_everything_can_be_said(tmp_path: Path) -> None:
    cluster = read(tmp_path, FULL)
    assert cluster == Cluster(
        hosts=(
            Host(
                name="node0",
                address="10.0.0.1",
                roles=(("chief", 1), ("ps", 1)),
                workdir="/data",
                user="alice",
                python=".venv/bin/python",
                gpus=2,
            ),
            Host(
                name="node1",
                address="node1",
                roles=(("evaluator", 1),),
                workdir="/data",
                user="bob",
                python="/opt/python",
                agent_python="python3.11",
                gpus=0,
            ),
        ),
        backend="ssh",
        ports=3000,
        environment=(("OMP_NUM_THREADS", "2"), ("SWITCH", "on")),
        pass_environment=("API_TOKEN",),
        limits=Limits(start_secs=30, idle_secs=None, lease_secs=2.5),
        restarts=3,
        gpus_per_task=1,
        source=str(tmp_path / "lab.yaml"),
    )


def test_a_list_of_names_is_enough(tmp_path: Path) -> None:
    cluster = read(tmp_path, "hosts: [node0, bob@node1]\n")
    assert [(host.name, host.user, host.roles) for host in cluster.hosts] == [
        ("node0", None, (("master", 1), ("ps", 1))),
        ("node1", "bob", (("worker", 1), ("ps", 1))),
    ]
    assert cluster.ports == 2222


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "lab.yaml:1: empty; it must at least list `hosts`"),
        ("\udcff", "lab.yaml: not YAML in UTF-8: 'utf-8' codec can't decode byte 0xff in"),
        ("[" * 500, "lab.yaml: not YAML in UTF-8: maximum recursion depth exceeded"),
        ("user: alice\n", "lab.yaml:1: hosts is missing; `init` writes a file that has it"),
        ("hosts: []\n", "lab.yaml:1: hosts must be a list with at least one host"),
        ("hosts:\n  - a\nrestarts: x\n", "lab.yaml:3: restarts must be a whole number from 0 to"),
        ("hosts:\n  - a\n  - a\n", "lab.yaml:2: host a is listed twice; list it once; `roles:` in"),
        ("hosts:\n  - a\nuser: x\nuser: y\n", "lab.yaml:4: user is given twice in the file"),
        ("hosts:\n  - 'a b'\n", "lab.yaml:2: host 'a b' is not a host"),
        ('hosts: [a]\nworkdir: "/a\\e[2J"\n', "lab.yaml:2: workdir must be a path on one line"),
        ("hosts:\n  - address: a\n", "lab.yaml:2: a host needs a `name`"),
        ("hosts:\n  - a\nagent_python: a b\n", "lab.yaml:3: agent_python must be a command or pa"),
        ("hosts: [a]\nports: 70000\n", "lab.yaml:2: ports must be `free` or a whole number from"),
        ("hosts:\n  - a\nlimits: {idle_secs: no}\n", "idle_secs must be a number of seconds above"),
        ('hosts: [a]\nenvironment:\n  A: "a\\0b"\n', "lab.yaml:3: A must be text without NUL char"),
        ("hosts: [a]\nenvironment:\n  TF_CONFIG: x\n", "lab.yaml:3: a key of environment must be"),
        ("hosts: [a]\npass_environment:\n  - a b\n", "lab.yaml:3: pass_environment must be the na"),
        ("hosts:\n  - a\nbackend: cloud\n", "lab.yaml:3: backend must be one of local, ssh"),
        ("backend: local\nhosts: [a, b]\n", f"lab.yaml:2: {ALL_HERE}"),
        ("hosts: [a\n", "not YAML"),
        ("hosts: [a]\nshelf: 1\n", "lab.yaml:2: shelf is not a key of the file; known: backend,"),
        ("hosts: [a]\nuser:\n- x\n", "lab.yaml:3: user must be one value, not a list or a mapping"),
        ("hosts: [a]\npass_environment: A\n", "lab.yaml:2: pass_environment must be a list (`- va"),
        ("hosts: [a]\nlimits: [1]\n", "lab.yaml:2: limits must be a mapping (`key: value` lines)"),
        ("hosts: [a]\ndocker: {restricted: yes}\n", "restricted must be true or false, got 'yes'"),
        ("hosts: [a]\n[a, b]: c\n", "lab.yaml:2: a key of the file must be one word"),
        ("hosts:\n  - name: a\n    roles: {ps: 1}\n", "lab.yaml:2: 0 masters: a cluster has exact"),
        ("hosts:\n- {name: a, roles: {master: 1, evaluator: 1}}\n", "lab.yaml:2: a master evaluat"),
    ],
)
def test_what_it_does_not_know_is_refused_with_its_line(
    tmp_path: Path, text: str, error: str
) -> None:
    with pytest.raises(LaunchError) as raised:
        read(tmp_path, text)
    assert error in str(raised.value)


def test_the_files_in_the_documentation_are_right(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(?!apiVersion)(.*?)^```", page, re.M | re.S)
    blocks[2] = f"backend: kubernetes\ntasks: {{master: 1}}\n{blocks[2]}"  # it has one section
    # The commented lines are an alternative: kubernetes instead of slurm.
    blocks.append(re.sub(r"^(backend|nodes|slurm): .*\n", "", blocks[1], flags=re.M))
    blocks[-1] = re.sub("^# ", "", blocks[-1], flags=re.M)
    backends = []
    for number, block in enumerate(blocks):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block, encoding="utf-8")
        backends.append(read_cluster(str(path), BACKENDS).backend)
    assert backends == ["ssh", "slurm", "kubernetes", "kubernetes"]


def roles(backend: str, nodes: Optional[int] = None, **counts: int) -> list[dict[str, int]]:
    return [dict(host.roles) for host in on_chosen_hosts(BACKENDS[backend], counts, nodes).hosts]


def test_each_trainer_has_a_node_beside_the_ps_and_fewer_nodes_get_tasks_in_turns() -> None:
    dealt = [{"master": 1, "ps": 1}, {"worker": 1, "ps": 1}, {"worker": 1}]
    assert roles("slurm", master=1, worker=2, ps=2) == dealt
    dealt = [{"master": 1, "worker": 1, "ps": 1}, {"worker": 2}]
    assert roles("slurm", 2, master=1, worker=3, ps=1) == dealt


def test_each_pod_is_a_host_of_its_own() -> None:
    dealt = [{"chief": 1}, {"worker": 1}, {"ps": 1}, {"evaluator": 1}]
    assert roles("kubernetes", chief=1, worker=1, ps=1, evaluator=1) == dealt


def test_jobs_that_may_share_a_node_find_free_ports() -> None:
    assert on_chosen_hosts(BACKENDS["slurm"], {"master": 1}).ports == FREE_PORTS
    assert on_chosen_hosts(BACKENDS["kubernetes"], {"master": 1}).ports == 2222


@pytest.mark.parametrize(
    ("word", "name"), [("[fe80::1]", "fe80::1"), ("me@fe80::1%eth0", "fe80::1%eth0")]
)
def test_an_ipv6_address_is_a_host_with_brackets_or_without(word: str, name: str) -> None:
    assert [host.address for host in host_list.from_hosts(word).hosts] == [name]


def test_hosts_are_listed_as_slurm_writes_them(tmp_path: Path) -> None:
    hosts = host_list.from_hosts("a@r[1-2]n[08-10,1], login,[::1]").hosts
    numbers = [f"r{r}n{n}" for r in (1, 2) for n in ("08", "09", "10", "1")]
    assert [host.name for host in hosts] == [*numbers, "login", "::1"]
    assert [host.user for host in hosts] == ["a"] * 8 + [None] * 2
    of_file = read(tmp_path, "hosts:\n- node[01-02]\n- b\n").hosts
    assert [(host.name, host.roles[0]) for host in of_file] == [
        ("node01", ("master", 1)), ("node02", ("worker", 1)), ("b", ("worker", 1)),
    ]  # fmt: skip
    with pytest.raises(LaunchError, match=r"lab.yaml:2: a\[1-9999\]: 2,001 hosts; a cluster has"):
        read(tmp_path, "hosts:\n- a[1-9999]\n")
    with pytest.raises(LaunchError, match=r"a range begins with its lowest number: \[1-4\]"):
        host_list.from_hosts("n[4-1,2]")


@pytest.mark.parametrize("word", ["node0:2222", "a:b", "fe80::12345", "fe80::1%a b", "-oProxy=x"])
def test_what_is_no_name_and_no_address_is_refused(word: str) -> None:
    with pytest.raises(LaunchError, match="is not a host: it must be NAME or USER@NAME"):
        host_list.from_hosts(word)
