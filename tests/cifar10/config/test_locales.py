"""Paths in locales other than UTF-8, where Python and TensorFlow would open different files."""

import os
import subprocess
from pathlib import Path
from typing import Union

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


def test_a_path_that_the_locale_cannot_encode_is_refused(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("output_dir: ausgäbe\n", encoding="utf-8")
    code, errors = export("--config", str(settings), cwd=tmp_path, **ASCII)
    assert code == 2
    assert errors == (
        b"error: --output-dir must be UTF-8, as TensorFlow's paths are, got 'ausg\\xe4be'; "
        b"rename it, or set PYTHONUTF8=1\n"
    )
    assert list(tmp_path.iterdir()) == [settings]
