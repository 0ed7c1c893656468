import re
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.arguments import words_of
from cifar10.config import flags

pytestmark = pytest.mark.slow  # Some benchmarks load TensorFlow.


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
        (["compare", "--", "--num-layers=8"], "--num-layers is what this benchmark decides"),
        (["advise", "--python=python3"], "--python and --workdir go with --hosts"),
        (["scale", "--constants", "none.json"], "--constants none.json: .* --save writes"),
    ],
)
def test_a_mistake_is_one_clear_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert re.search(message, line)


def test_the_words_of_a_configuration_give_it_again(tmp_path: Path) -> None:
    config = flags.parse(["--num-layers=8", "--learning-rate=0.05", "--train-steps=9"])
    assert flags.parse(words_of(config)) == config
    assert words_of(config, {"train_steps"}) == ["--num-layers=8", "--learning-rate=0.05"]
    file = tmp_path / "mine.yaml"
    file.write_text("num_layers: 20\noptimizer: muon\n", encoding="utf-8")
    assert words_of(flags.parse([f"--recipe={file}"])) == ["--num-layers=20", "--optimizer=muon"]
