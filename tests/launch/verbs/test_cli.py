"""The command line: how it describes a cluster, and what it refuses."""

from pathlib import Path

import pytest

from launch.verbs.cli import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["plan"], "error: --on ssh needs hosts: name them with --hosts or --cluster, or take "),
        (["up", "--cluster", "/nowhere.yaml"], "error: /nowhere.yaml: No such file or directory"),
        (["plan", "--on", "slurm", "--nodes", "9"], "error: 9 nodes are too many for 2"),
        (["plan", "--hosts", "a,a"], "error: host a is listed twice; list it once; `roles:` in a"),
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


@pytest.mark.parametrize(
    ("words", "flag", "way", "rule"),
    [
        ("--hosts a,b --on local", "--hosts a,b", "--on local", "it needs none; give --worker"),
        (
            "--hosts a --nodes 2",
            "--nodes 2",
            "--on ssh",
            "only a backend that chooses the hosts tak",
        ),
        ("--on slurm --workdir /b --hosts a", "--hosts a", "--on slurm", "it needs none; give"),
        ("--hosts a --workers 2", "--workers 2", "--hosts", "--hosts decides each host's tasks; "),
        ("--hosts a --cluster b", "--hosts a", "--cluster", "the cluster file sets this; change"),
    ],
)
def test_a_flag_that_another_one_leaves_without_a_meaning_is_refused(
    capsys: pytest.CaptureFixture[str], words: str, flag: str, way: str, rule: str
) -> None:
    code, output = run(capsys, "plan", *words.split())
    assert code == 2
    assert output.startswith(f"error: {flag} does not go with {way}: {rule}")


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
    assert output == f"error: {file}:1: hosts is missing; `init` writes a file that has it\n"


def test_an_unknown_flag_is_told_where_others_belong(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["plan", "--host=a", "--train-batch-size=16"])
    assert raised.value.code == 2
    assert capsys.readouterr().err == (
        "error: unknown: --host=a --train-batch-size=16; keys of cluster files have no flags, and "
        "training's own arguments go after --; see python -m launch --help\n"
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("plan --hosts a --workdir ~eve/a", "--workdir: must be a path on one line, in no other u"),
        ("plan --on local --python=~/a/python", "--python: must be a command, or a path on one li"),
        ("setup --hosts a --requirements ../a", "--requirements: must be a file of the checkout, "),
        ("logs --tail -1", "argument --tail: "),
        ("list --state-dir ~no-one/x", "--state-dir: ~no-one/x: there is no user no-one; a folder"),
    ],
)
def test_a_value_that_means_nothing_is_refused_with_the_rule(
    words: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(words.split())
    assert raised.value.code == 2
    assert error in capsys.readouterr().err


def test_a_folder_that_the_system_refuses_is_named_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "/" + 300 * "x"
    code, output = run(capsys, "list", "--state-dir", name)
    assert (code, output) == (1, f"error: {name}: File name too long\n")
