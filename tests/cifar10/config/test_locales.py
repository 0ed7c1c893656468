"""Paths in locales other than UTF-8, where Python and TensorFlow would open different files."""

import os
import subprocess
from pathlib import Path
from typing import Union

import pytest

from testbeds.processes import command, environment

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def export(*words: Union[str, bytes], cwd: Path, **variables: str) -> tuple[int, bytes]:
    """Runs `--mode export` of a folder without a checkpoint; returns exit code and errors."""
    done = subprocess.run(
        [*map(os.fsencode, command("--mode=export")), *map(os.fsencode, words)],
        cwd=cwd,
        env={**environment(), **variables},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def latin1(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a locale with ISO-8859-1, which is compiled for these tests."""
    folder = tmp_path_factory.mktemp("locales")
    words = ["localedef", "-i", "en_US", "-f", "ISO-8859-1", str(folder / "en_US.ISO-8859-1")]
    try:
        subprocess.run(words, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"localedef makes no locale: {error}")
    return {"LOCPATH": str(folder), "LC_ALL": "en_US.ISO-8859-1", "PYTHONUTF8": "0"}


def test_a_path_that_the_locale_encodes_in_another_way_is_refused(
    latin1: dict[str, str], tmp_path: Path
) -> None:
    code, errors = export("--output-dir", "ausgäbe".encode(), cwd=tmp_path, **latin1)
    assert code == 2
    assert errors.decode() == (
        "error: --output-dir must be UTF-8, as TensorFlow's paths are, got 'ausgäbe' in iso8859-1, "
        "the encoding of this locale; set PYTHONUTF8=1 or rename it\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_the_locale_cannot_encode_is_refused(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("output_dir: ausgäbe\n", encoding="utf-8")
    code, errors = export("--config", str(settings), cwd=tmp_path, **ASCII)
    assert code == 2
    assert errors == (
        b"error: --output-dir must be UTF-8, as TensorFlow's paths are, got 'ausg\\xe4be' in "
        b"ascii, the encoding of this locale; set PYTHONUTF8=1 or rename it\n"
    )
    assert list(tmp_path.iterdir()) == [settings]
