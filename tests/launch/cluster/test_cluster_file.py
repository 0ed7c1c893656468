"""Cluster files: what they can describe, and the errors for wrong keys and values."""

import re
from pathlib import Path

import pytest

from launch.backends.registry import KINDS
from launch.cluster.cluster_file import read_cluster
from launch.cluster.model import Cluster, Host, Limits, Ports
from launch.errors import LaunchError
from tests.launch.cluster.full import FULL

PAGE = Path(__file__).parents[3] / "docs" / "launch.md"

ALL_HERE = "all tasks run on this machine; list localhost alone, or run on ssh"


def read(folder: Path, text: str) -> Cluster:
    path = folder / "lab.yaml"
    path.write_text(text)
    return read_cluster(str(path), KINDS)


def test_the_python_of_all_hosts_counts_for_one_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is the launcher's own default, which does not hold in another folder."""
    monkeypatch.setattr("launch.cluster.cluster_file.default_python", lambda: ".venv/bin/python")
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
        ports=Ports(3000, 3010),
        environment=(("OMP_NUM_THREADS", "2"), ("SWITCH", "on")),
        passed=("API_TOKEN",),
        limits=Limits(start_secs=30, idle_secs=None, lease_secs=2.5),
        restarts=3,
        gpus_per_task=1,
        sync=True,
        source=str(tmp_path / "lab.yaml"),
    )


def test_a_list_of_names_is_enough(tmp_path: Path) -> None:
    cluster = read(tmp_path, "hosts: [node0, bob@node1]\n")
    assert [(host.name, host.user, host.roles) for host in cluster.hosts] == [
        ("node0", None, (("master", 1), ("ps", 1))),
        ("node1", "bob", (("worker", 1), ("ps", 1))),
    ]
    assert cluster.ports == Ports(2222)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "{name: lab, address: 127.0.0.1}"])
def test_a_file_for_this_machine_may_name_it(tmp_path: Path, host: str) -> None:
    assert len(read(tmp_path, f"backend: local\nhosts: [{host}]\n").hosts) == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "lab.yaml:1: empty; it must at least list `hosts`"),
        ("[" * 500, "lab.yaml: nested too deeply to be read"),
        ("user: alice\n", "lab.yaml:1: hosts is missing; list the machines under it"),
        ("- node0\n", "lab.yaml:1: the file must be a mapping"),
        ("hosts: []\n", "lab.yaml:1: hosts must be a list with at least one host"),
        (
            "hosts:\n  - a\nrestart: 3\n",
            "lab.yaml:3: restart is not a key of the file; did you mean res",
        ),
        ("hosts:\n  - a\nrestarts: x\n", "lab.yaml:3: restarts must be a whole number from 0 to"),
        ("hosts:\n  - a\nrestarts: [1]\n", "lab.yaml:3: restarts must be one value, not a list"),
        ("hosts:\n  - a\n  - a\n", "lab.yaml:2: host a is listed twice"),
        ("hosts:\n  - a\nuser: x\nuser: y\n", "lab.yaml:4: user is given twice in the file"),
        ("hosts:\n  - 'a b'\n", "lab.yaml:2: host 'a b' is not a host"),
        ("hosts:\n  - -oProxyCommand=x\n", "lab.yaml:2: host '-oProxyCommand=x' is not a host"),
        ("hosts:\n  - name: a;b\n", "lab.yaml:2: name 'a;b' is not a host: it must be NAME or"),
        ("hosts: ['a:2222']\n", "lab.yaml:1: host 'a:2222': the number could be the port of a"),
        ("hosts:\n- {name: a, address: '[::1]:1'}\n", "lab.yaml:2: address '[::1]:1': the number"),
        ('hosts: [a]\nworkdir: "/a\\e[2J"\n', "lab.yaml:2: workdir must be a path on one line"),
        ('hosts: [a]\ndocker: {data: "/a\\e[2J"}\n', "lab.yaml:2: data must be a folder, without"),
        ('hosts: [a]\ndocker: {options: ["--x=\\e"]}\n', "lab.yaml:2: options must be words like"),
        ('hosts: [a]\nkubernetes: {data: "/\\e[2J"}\n', "lab.yaml:2: data must be a persistentVo"),
        ("hosts:\n  - address: a\n", "lab.yaml:2: a host needs a `name`"),
        (
            "hosts:\n  - name: a\n    role: {}\n",
            "lab.yaml:3: role is not a key of a host; did you mean",
        ),
        ("hosts:\n  - a\nagent_python: a b\n", "lab.yaml:3: agent_python must be a command or pa"),
        ("hosts:\n  - a\nports: 0\n", "lab.yaml:3: ports must be a first port, a range or `free`"),
        ("hosts:\n  - a\nports: 9-8\n", "ports go from 1 to 65535, the lower one first"),
        ("hosts:\n  - a\nports: 70000\n", "lab.yaml:3: ports must be a first port"),
        ("hosts:\n  - a\nlimits: {idle_secs: no}\n", "idle_secs must be a number of seconds above"),
        ("hosts:\n  - a\nsync: yes\n", "lab.yaml:3: sync must be true or false, got 'yes'"),
        (
            'hosts:\n  - a\nenvironment:\n  A: "a\\0b"\n',
            "lab.yaml:4: A must be text without NUL characters, which no process can be given, got "
            "'a\\x00b'",
        ),
        (
            "hosts:\n  - a\nenvironment:\n  TF_CONFIG: x\n",
            "lab.yaml:4: a key of environment cannot be TF_CONFIG, which the launcher sets",
        ),
        (
            "hosts:\n  - a\npass_environment:\n  - a b\n",
            "lab.yaml:4: pass_environment must be the name of a variable",
        ),
        ("hosts:\n  - a\nbackend: cloud\n", "lab.yaml:3: backend must be one of local, ssh"),
        (
            "backend: local\nhosts: [a, b]\n",
            f"lab.yaml:2: hosts a,b does not go with local: {ALL_HERE}",
        ),
        (
            "backend: local\nhosts: [node7]\n",
            f"lab.yaml:2: hosts node7 does not go with local: {ALL_HERE}",
        ),
        (
            "backend: local\nhosts: [{name: localhost, address: 192.0.2.7}]\n",
            f"lab.yaml:2: hosts localhost does not go with local: {ALL_HERE}",
        ),
        ("hosts: [a\n", "not YAML"),
        ("hosts:\n  - name: a\n    roles: {ps: 1}\n", "lab.yaml:2: 0 masters: a cluster has exact"),
        (
            "hosts:\n  - name: a\n    roles: {master: 1}\n  - b\n",
            "lab.yaml:4: host b has no `roles`, but other hosts have; add them",
        ),
        (
            "hosts:\n  - name: a\n    roles: {master: 1, evaluator: 1}\n",
            "lab.yaml:2: a master evaluates itself, so it cannot go with an evaluator",
        ),
    ],
)
def test_what_it_does_not_know_is_refused_with_its_line(
    tmp_path: Path, text: str, error: str
) -> None:
    with pytest.raises(LaunchError) as raised:
        read(tmp_path, text)
    assert error in str(raised.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="nothing.yaml: No such file or directory; --cluster"):
        read_cluster(str(tmp_path / "nothing.yaml"), KINDS)


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_bytes(b"hosts: \xff\xfe")
    with pytest.raises(LaunchError, match="lab.yaml"):
        read_cluster(str(tmp_path / "lab.yaml"), KINDS)


def test_the_files_in_the_documentation_are_right(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    # The commented lines are an alternative: kubernetes instead of slurm.
    blocks.append(re.sub(r"^(backend|nodes|slurm): .*\n", "", blocks[1], flags=re.M))
    blocks[-1] = re.sub("^# ", "", blocks[-1], flags=re.M)
    backends = []
    for number, block in enumerate(blocks):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block, encoding="utf-8")
        backends.append(read_cluster(str(path), KINDS).backend)
    assert backends == ["ssh", "slurm", "kubernetes"]


def test_the_documentation_shows_every_key(tmp_path: Path) -> None:
    unknown = tmp_path / "unknown.yaml"
    unknown.write_text("hosts: [node0]\nzzz: 1\n")
    with pytest.raises(LaunchError) as refused:
        read_cluster(str(unknown), KINDS)
    keys = str(refused.value).partition("known: ")[2].split(", ")
    assert len(keys) > 15
    page = PAGE.read_text(encoding="utf-8")
    assert [key for key in keys if not re.search(rf"^(# |  )*{key}:", page, re.M)] == []
