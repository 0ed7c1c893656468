import json
from pathlib import Path

import pytest

from benchmarks.cli import BENCHMARKS, main

pytestmark = pytest.mark.slow  # Half of the benchmarks load TensorFlow.


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
        (["advise", "--", "--sync=false"], "--sync is what this benchmark decides"),
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
