import json
from pathlib import Path

import pytest

from benchmarks.cli import BENCHMARKS, main
from testbeds.limited_links import why_not

pytestmark = pytest.mark.slow  # Half of the benchmarks load TensorFlow.


def test_every_benchmark_is_named_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in BENCHMARKS if name not in shown] == []


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_every_benchmark_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: python -m benchmarks {name} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sprint"], "no benchmark sprint; there are compare, advise"),
        (["compare", "--data-dir", "nowhere"], "there is no nowhere/manifest.json"),
        (["advise", "--", "--sync=false"], "--sync is what this benchmark decides"),
        (["advise", "--", "--train-steps=0"], "--train-steps must be at least 1"),
        (["advise", "--workdir", "/data"], "--python and --workdir go with --hosts"),
        (["advise", "--cluster", "none.yaml"], "none.yaml"),
        (["scale", "--constants", "none.json"], "--constants none.json: "),
        (["scale", "--", "--mode=evaluate"], "--mode is what this benchmark decides"),
        (["check-scale", "--", "--ps-hosts=a:1"], "--ps-hosts"),
    ],
)
def test_a_mistake_is_one_clear_line(
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert message in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "--rounds", "0"], "must be a whole number from 1 on, got '0'"),
        (["scale", "--link", "fast"], "must be such as 100Mbit or 10Gbit, got 'fast'"),
        (["scale", "--link", "0Mbit"], "got '0Mbit'"),
        (["scale", "--link", f"{'9' * 400}Gbit"], "must be such as 100Mbit or 10Gbit, got '999"),
        (["scale", "--seconds", "nan"], "must be a number above 0, got 'nan'"),
        (["scale", "--seconds", "1e400"], "must be a number above 0, got '1e400'"),
        (["compare", "--rounds", "9" * 5000], "must be a whole number from 1 on, got '999"),
        (["compare", "--data-dir", ""], "an argument must not be empty; leave it out"),
        (["advise", "--out="], "--out must not be empty; leave it out"),
        (["kernels", "--rounds", "-1"], "must be a whole number from 1 on, got '-1'"),
        (["scale", "--trainers", "0"], "must be a whole number from 1 on, got '0'"),
        (["scale", "--seconds", "-1"], "must be a number above 0, got '-1'"),
        (["check-scale", "--shapes", "2"], "must be such as 2x1 or 2x1sync, got '2'"),
        (["check-scale", "--links", "1Gbit+10"], "must be such as 1Gbit or 1Gbit+10ms"),
        (["advise", "--hosts", "a", "--cluster", "b"], "not allowed with"),
    ],
)
def test_a_word_of_the_wrong_form_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_scheduler_s_cluster_is_not_for_advise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "slurm.yaml"
    file.write_text("backend: slurm\ntasks: {master: 1}\n")
    assert main(["advise", "--cluster", str(file)]) == 2
    assert "must have `backend: ssh` or `local`, got slurm" in capsys.readouterr().err


def test_constants_that_were_kept_predict_without_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "constants.json"
    constants = {
        "batch_size": 100,
        "step_bytes": 5e6,
        "compute_secs": 0.1,
        "jitter": 0.1,
        "own_secs": 0.004,
        "server_secs": 0.001,
        "server_secs_per_byte": 1e-9,
    }
    file.write_text(json.dumps(constants))
    words = ["--link", "1Gbit", "--round-trip-ms", "1", "--trainers", "1", "--ps", "1"]
    assert main(["scale", "--constants", str(file), *words]) == 0
    shown = capsys.readouterr().out
    assert "a step of 100 images: 100.0 ms of computing" in shown
    assert "643" in shown  # 100 images in 155.5 ms
    file.write_text("{}")
    assert main(["scale", "--constants", str(file)]) == 2


def test_machines_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert why_not() == "network namespaces need root"
