"""The command line: how it describes a cluster, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Union

import pytest

from launch.verbs.cli import main
from tests.launch.launcher import ROOT


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["plan"], "error: no cluster: say where to run with --hosts, --cluster or --on local"),
        (["up", "--cluster", "/nowhere.yaml"], "error: /nowhere.yaml: No such file or directory"),
        (["plan", "--on", "slurm", "--nodes", "9"], "error: 9 nodes are too many for 2"),
        (["plan", "--hosts", "a,,b"], "error: '' is not a host"),
        (
            ["plan", "--hosts", "a,a"],
            "error: host a is listed twice; list it once; `roles:` in a cluster file gives",
        ),
        (["plan", "--hosts=-oProxyCommand=id"], "error: '-oProxyCommand=id' is not a host"),
        (["status", "--", "--x"], "error: status takes no training arguments after --"),
    ],
)
def test_mistakes_are_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    code, output = run(capsys, *words)
    assert code == 2
    assert output.startswith(error)
    assert len(output.splitlines()) == 1


IN_FILE = "the cluster file sets this; change it there"
IN_ROLES = "--hosts decides each host's tasks; leave it out, or set `roles:` in a file (--cluster)"
ON_HOSTS_OF_ITS_OWN = "it chooses the hosts itself; give --workers and --ps instead"
NOT_CHOSEN = "only a backend that chooses the hosts takes it, such as slurm; leave it out"


@pytest.mark.parametrize(
    ("words", "flag", "way", "rule"),
    [
        (
            "--hosts a,b --on local",
            "--hosts a,b",
            "--on local",
            "all tasks run on this machine; give --workers and --ps, or --on ssh",
        ),
        ("--hosts a --on slurm", "--hosts a", "--on slurm", ON_HOSTS_OF_ITS_OWN),
        ("--hosts a --on kubernetes", "--hosts a", "--on kubernetes", ON_HOSTS_OF_ITS_OWN),
        ("--on local --nodes 2", "--nodes 2", "--on local", NOT_CHOSEN),
        ("--hosts a --on docker --nodes 2", "--nodes 2", "--on docker", NOT_CHOSEN),
        (
            "--on kubernetes --nodes 2",
            "--nodes 2",
            "--on kubernetes",
            "it chooses a node for each task; leave it out",
        ),
        (
            "--hosts a --on docker --python b",
            "--python b",
            "--on docker",
            "the image has its own Python; leave it out",
        ),
        (
            "--on kubernetes --workdir /b",
            "--workdir /b",
            "--on kubernetes",
            "the image holds the code; leave it out",
        ),
        ("--hosts a --workers 2", "--workers 2", "--hosts", IN_ROLES),
        ("--hosts a --ps 0", "--ps 0", "--hosts", IN_ROLES),
        ("--hosts a --cluster b", "--hosts a", "--cluster", IN_FILE),
        ("--cluster a --python b", "--python b", "--cluster", IN_FILE),
        ("--cluster a --evaluator", "--evaluator", "--cluster", IN_FILE),
    ],
)
def test_a_flag_that_another_one_leaves_without_a_meaning_is_refused(
    capsys: pytest.CaptureFixture[str], words: str, flag: str, way: str, rule: str
) -> None:
    code, output = run(capsys, "plan", *words.split())
    assert (code, output) == (2, f"error: {flag} does not go with {way}: {rule}\n")


def test_a_backend_that_needs_hosts_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "plan", "--on", "docker", "--workers", "2")
    rule = "error: --on docker needs hosts; name them with --hosts or --cluster\n"
    assert (code, output) == (2, rule)


def test_the_backend_that_is_chosen_reads_the_cluster_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("backend: slurm\ntasks: {master: 1, worker: 1, ps: 1}\nnodes: 1\n")
    code, output = run(capsys, "plan", "--cluster", str(file))
    assert (code, output.splitlines()[0]) == (0, "1 master, 1 worker, 1 ps on 1 host (slurm)")
    _, output = run(capsys, "plan", "--cluster", str(file), "--on", "kubernetes")
    rule = "kubernetes chooses nodes itself, a pod for each task; leave them out"
    assert output == f"error: {file}:2: {rule}\n"
    _, output = run(capsys, "plan", "--cluster", str(file), "--on", "ssh")
    assert output == f"error: {file}:1: hosts is missing; list the machines under it\n"


def test_a_file_whose_hosts_are_elsewhere_is_refused_as_hosts_are(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rule = "all tasks run on this machine; list localhost alone, or run on ssh"
    file = tmp_path / "lab.yaml"
    file.write_text("hosts: [node7]\n")
    _, output = run(capsys, "plan", "--cluster", str(file), "--on", "local")
    assert output == f"error: {file}:1: hosts node7 does not go with local: {rule}\n"
    _, output = run(capsys, "plan", "--hosts", "node7", "--on", "local")
    rule = "all tasks run on this machine; give --workers and --ps, or --on ssh"
    assert output == f"error: --hosts node7 does not go with --on local: {rule}\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--host=a", "--train-batch-size=16"], "hosts are given by --hosts a,b or --cluster FILE"),
        (["-H", "a"], "hosts are given by --hosts a,b or --cluster FILE"),
        (["-np", "4"], "--workers N gives the number of workers beside the master; with --hosts, "),
        (["--num_ps=2"], "--ps N gives the number of parameter servers"),
        (["--ps-hosts", "a:1"], "--hosts a,b puts a master or worker and a ps on each host; `role"),
        (["--gpus_per_task", "2"], "`gpus_per_task:` is a key of cluster files (--cluster FILE)"),
        (["--train-batch-size=16"], "the training's own arguments go after --"),
    ],
)
def test_an_unknown_flag_leads_to_the_launchers_own(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["plan", *words])
    assert raised.value.code == 2
    refusal = capsys.readouterr().err
    assert refusal.startswith(f"error: unknown: {' '.join(words)}; {hint}")
    assert refusal.endswith("; see python -m launch --help\n")


@pytest.mark.parametrize("place", ["a\nb", "~eve/a", "/a\x1b[2J"])
def test_a_workdir_is_refused_as_in_a_cluster_file(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--hosts", "a", "--workdir", place])
    rule = "error: argument --workdir: must be a path on one line, in no other user's home (~name)"
    assert capsys.readouterr().err.startswith(f"{rule}, got {place!r}; see")


def test_a_python_in_a_home_is_refused_with_the_ways_to_name_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rule = "must be a command, or a path on one line without ~: an absolute one, or one from"
    with pytest.raises(SystemExit) as raised:
        main(["plan", "--on", "local", "--python=~/venv/bin/python"])
    assert raised.value.code == 2
    assert f"argument --python: {rule}" in capsys.readouterr().err
    file = tmp_path / "lab.yaml"
    file.write_text("hosts: [a]\npython: ~/venv/bin/python\n")
    code, output = run(capsys, "plan", "--cluster", str(file))
    assert code == 2
    assert output.startswith(f"error: {file}:2: python {rule} workdir, such as .venv/bin/python, ")


@pytest.mark.parametrize("name", ["/abs/req.txt", "../req.txt", "a/../../req.txt"])
def test_requirements_outside_of_the_checkout_are_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["setup", "--hosts", "a", "--requirements", name])
    assert raised.value.code == 2
    rule = "must be a file of the checkout (copy it there), such as requirements.lock, got"
    assert f"--requirements: {rule} {name!r}; see" in capsys.readouterr().err


def test_a_folder_in_the_home_of_nobody_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["list", "--state-dir", "~no-one/x"])
    assert raised.value.code == 2
    words = "--state-dir: ~no-one/x: there is no user no-one; a folder of that name here is ./~no-"
    assert words in capsys.readouterr().err


def test_local_counts_its_workers_besides_the_master(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "plan", "--on", "local", "--workers", "2", "--ps", "1")
    assert code == 0
    assert output.startswith("1 master, 2 workers, 1 ps on 1 host (local)\n")


def test_an_evaluator_stands_beside_a_chief(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "plan", "--on", "local", "--evaluator")
    assert code == 0
    assert output.startswith("1 chief, 1 evaluator, 1 ps on 1 host (local)\n")


def test_a_folder_that_the_system_refuses_is_named_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "/" + 300 * "x"
    code, output = run(capsys, "list", "--state-dir", name)
    assert (code, output) == (1, f"error: {name}: File name too long\n")


@pytest.mark.parametrize(
    ("encoding", "word", "shown"),
    [
        ("utf-8", b"/data/\xff", b"/data/\\udcff"),
        ("iso-8859-1", "/data/\u20ac".encode(), b"/data/\\u20ac"),
        ("utf-8", "/data/\u20ac".encode(), "/data/\u20ac".encode()),
        ("utf-8:surrogateescape", b"/data/\xff", b"/data/\xff"),
    ],
)
def test_what_standard_output_cannot_show_is_an_escape(
    encoding: str, word: bytes, shown: bytes
) -> None:
    words = ["-m", "launch", "plan", "--on", "local", "--", "--data-dir"]
    env = {**os.environ, "PYTHONUTF8": "1", "PYTHONIOENCODING": encoding}
    command: list[Union[str, bytes]] = [sys.executable, *words, word]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert shown in done.stdout


def test_without_standard_output_a_command_ends_as_usual() -> None:
    command = 'exec >&-; exec "$0" -m launch plan --on local'
    done = subprocess.run(["sh", "-c", command, sys.executable], cwd=ROOT, check=False)
    assert done.returncode == 0
