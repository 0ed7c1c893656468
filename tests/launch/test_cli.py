"""The command line: what describes a cluster, and what is refused."""

import pytest

from launch.cli import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["plan"], "error: no cluster: say where to run with --hosts, --cluster or --on local"),
        (["up", "--cluster", "/nowhere.yaml"], "error: /nowhere.yaml: No such file or directory"),
        (["plan", "--hosts", "a", "--cluster", "b"], "error: --cluster and --hosts both describe"),
        (
            ["plan", "--hosts", "a", "--workers", "2"],
            "error: --workers, --ps and --evaluator go with",
        ),
        (["plan", "--on", "local", "--nodes", "2"], "error: --nodes goes with --on slurm"),
        (["plan", "--hosts", "a", "--on", "slurm"], "error: --on slurm does not go with this desc"),
        (["plan", "--on", "slurm", "--nodes", "9"], "error: 9 nodes for 2 tasks; take fewer"),
        (["plan", "--on", "kubernetes", "--nodes", "2"], "error: kubernetes chooses nodes itself"),
        (["plan", "--hosts", "a,,b"], "error: '' is not a host"),
        (["plan", "--hosts", "a,a"], "error: host a stands there twice"),
        (["plan", "--hosts=-oProxyCommand=id"], "error: '-oProxyCommand=id' is not a host"),
        (["plan", "--cluster", "a", "--python", "b"], "error: --python and --cluster: say `python"),
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


def test_a_misspelt_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["plan", "--host=a", "--train-batch-size=16"])
    assert raised.value.code == 2
    assert (
        "unknown: --host=a --train-batch-size=16; the training's own arguments go after --"
        in capsys.readouterr().err
    )


def test_local_counts_its_workers_besides_the_master(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "plan", "--on", "local", "--workers", "2", "--ps", "1")
    assert code == 0
    assert output.startswith("1 master, 2 worker, 1 ps on 1 host (local)\n")


def test_an_evaluator_stands_beside_a_chief(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "plan", "--on", "local", "--evaluator")
    assert code == 0
    assert output.startswith("1 chief, 1 evaluator, 1 ps on 1 host (local)\n")
