"""The cluster file that `init` writes."""

import os
import re
from pathlib import Path

import pytest

from launch.backends.registry import BACKENDS
from launch.cluster.cluster_file import read_cluster
from launch.cluster.model import Cluster, Host, Limits
from launch.cluster.yaml_section import keys_of
from launch.verbs.cli import main

FLAGS = {
    "ssh": ("--hosts", "alice@node0,node1"),
    "docker": ("--on", "docker", "--hosts", "node0,node1"),
    "local": ("--on", "local", "--workers", "2"),
    "slurm": ("--on", "slurm", "--workers", "2"),
    "kubernetes": ("--on", "kubernetes"),
}


def write(folder: Path, *flags: str) -> str:
    path = folder / "cluster.yaml"
    assert main(["init", *flags, "--out", str(path)]) == 0
    return path.read_text()


def read(folder: Path) -> Cluster:
    return read_cluster(str(folder / "cluster.yaml"), BACKENDS)


def roles(cluster: Cluster) -> list[dict[str, int]]:
    return [dict(host.roles) for host in cluster.hosts]


def test_the_file_says_what_the_flags_say(tmp_path: Path) -> None:
    write(tmp_path, "--hosts", "alice@a,b,c", "--evaluator", "--workdir", "/srv/x")
    cluster = read(tmp_path)
    assert roles(cluster) == [
        {"chief": 1, "ps": 1}, {"worker": 1, "ps": 1}, {"worker": 1, "ps": 1, "evaluator": 1}
    ]  # fmt: skip
    first = cluster.hosts[0]
    assert (first.name, first.user) == ("a", "alice")
    assert (first.workdir, first.python) == ("/srv/x", ".venv/bin/python")


@pytest.mark.parametrize("kind", FLAGS)
def test_every_key_is_there_and_can_be_uncommented(tmp_path: Path, kind: str) -> None:
    head, _, body = write(tmp_path, *FLAGS[kind]).partition("\n\n")
    cluster = read(tmp_path)
    found = (cluster.backend, cluster.count("master"), cluster.ports)
    assert found == (kind, 1, BACKENDS[kind].default_ports)
    everything = "".join(f"{line.removeprefix('# ')}\n" for line in body.splitlines())
    (tmp_path / "cluster.yaml").write_text(everything)
    assert read(tmp_path).backend == kind
    settings = [Cluster, Limits, *filter(None, [BACKENDS[kind].settings])]
    if kind in ("ssh", "docker", "local"):
        settings.append(Host)
    keys = {key for section in settings for key in keys_of(section)}
    unused = set[str]()
    if kind in ("slurm", "kubernetes"):
        unused |= {"ports", "operator"}  # the latter is refused
    if kind == "docker":
        unused.add("python")  # the image's
    if kind == "local":
        unused.add("user")
    assert keys - unused - {*re.findall(r"^ *(?:- )?(\w+):", everything, re.M)} == set()


@pytest.mark.parametrize("place", ["/it's: here", "/data/[a], {b}"])
def test_a_value_is_taken_as_it_is(tmp_path: Path, place: str) -> None:
    write(tmp_path, "--hosts", "a", "--workdir", place)
    assert read(tmp_path).hosts[0].workdir == place


def test_a_file_that_is_there_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text("mine")
    assert main(["init", "--hosts", "a"]) == 2
    error = "error: cluster.yaml: File exists; name another with --out\n"
    assert capsys.readouterr().err == error
    assert Path("cluster.yaml").read_text() == "mine"
    assert os.listdir() == ["cluster.yaml"]
