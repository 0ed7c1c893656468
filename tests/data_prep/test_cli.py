import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep import cli
from data_prep.folder import publish
from data_prep.tfrecord import write
from tests.unprivileged import open_folder, unprivileged

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--source", "synthetic", "--synthetic-size", "100"]


def _code(*words: str) -> int:
    try:
        return cli.main(words)
    except SystemExit as error:
        return int(error.code or 0)


def test_help_tells_the_whole_story(capsys):
    assert _code("--help") == 0
    text = capsys.readouterr().out
    for word in ("download", "verify", "show", "synthetic", "--validation-size", "--force", "143"):
        assert word in text
    for command in ("convert", "download", "verify", "show"):
        assert _code(command, "--help") == 0


def test_a_run_ends_with_counts_balance_time_and_what_comes_next(python_source, tmp_path, capsys):
    out = tmp_path / "it's my data"
    assert _code("convert", "--source", str(python_source), "--out", str(out)) == 0
    output = capsys.readouterr().out
    assert re.search(r"airplane +9 +1 +2\n", output)
    assert re.search(r"all +90 +10 +20\n", output)
    assert "not byte for byte the published archive" in output
    assert re.search(r"Written and verified in \d+\.\d s", output)
    last = output.splitlines()[-1]
    assert last.startswith("Next: python cifar10_main.py --data-dir ")
    assert shlex.split(last)[-3:] == ["--data-dir", str(out), "--train-batch-size=128"]


def test_the_synthetic_set_is_never_passed_off_as_cifar10(tmp_path, capsys):
    assert _code(*SMALL, "--out", str(tmp_path)) == 0
    output = capsys.readouterr().out
    assert "not CIFAR-10; accuracy says nothing about CIFAR-10" in output
    assert re.search(r"disc +9 +1 +2\n", output)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--source", "/nowhere"], "/nowhere: no such file or folder"),
        (["--source", "synthetic", "--shards", "0"], "--shards: must be a whole number from 1 to"),
        (["--source", "synthetic", "--shards", "100000"], "from 1 to 99,999, got '100000'"),
        (["--source", "synthetic", "--seed", "x"], "--seed: must be a whole number from 0 on"),
        ([*SMALL, "--validation-size", "-1"], "must be 0 to 90 for 100"),
        (["--source", "synthetic", "--synthetic-size", "5"], "must be 20 to 200000, got 5"),
        (["--source", "x", "--synthetic-size", "50"], "is for --source synthetic, got it with x"),
        ([*SMALL, "--shards", "200"], r"--shards must be 1 to 90 \(train images\), got 200"),
        ([*SMALL, "--resize", "crop"], "--resize is for image files, got it with --source synth"),
        ([*SMALL, "--resize", "blur"], "--resize: invalid choice: 'blur' .*crop.*pad.*stretch"),
        (["--out", "x"], "required: --source"),
        (["--source", "synthetic", "--valid", "5"], "unrecognized arguments: --valid"),
        (
            ["frobnicate"],
            "there is no command frobnicate: the commands are convert, download, verify and show; "
            "--source names what to convert\n",
        ),
        (["verify"], "required: DIR"),
        (["download", "--archive", "matlab"], "invalid choice: 'matlab'"),
        (["--out", "", "--source", "synthetic"], "--out: must not be empty; leave it out"),
        (["verify", ""], "DIR: must not be empty; leave it out"),
        (["--source", "~no-one/x"], "~no-one/x: there is no user no-one; a folder of that name"),
        (["--out", "~no-one", "--source", "synthetic"], "~no-one: there is no user no-one; a fold"),
    ],
)
def test_a_bad_flag_or_source_is_one_line_and_exit_2(words, reason, tmp_path, capsys):
    place = [] if words[0] in ("frobnicate", "verify", "--out") else ["--out", str(tmp_path)]
    assert _code(*words, *place) == 2
    error = capsys.readouterr().err
    assert re.search(reason, error)
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_the_home_is_filled_in_for_every_path(python_source, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").symlink_to(python_source)
    assert _code("--source=~/source", "--out=~/records") == 0
    assert _code("verify", "~/records") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["records", "source"]


def test_a_name_with_control_characters_cannot_write_on_the_terminal(tree, tmp_path, capsys):
    (tree / "train" / "cat" / "a\n\x1b[31mred.png").write_bytes(b"noise")
    assert _code("--source", str(tree), "--out", str(tmp_path / "out")) == 2
    error = capsys.readouterr().err
    assert "\x1b" not in error
    assert error.count("\n") == 1


def test_names_that_are_no_text_are_printed(python_source, tmp_path, capsysbinary):
    source, out = (f"{tmp_path}/{name}-\udcff" for name in ("in", "out"))
    os.symlink(python_source, source)
    assert _code("--source", source, "--out", out) == 0
    assert _code("verify", out) == 0
    assert b"out- : 120 records are undamaged" in capsysbinary.readouterr().out
    assert _code("verify", f"{tmp_path}/none-\udcff") == 2
    assert capsysbinary.readouterr().err.startswith(b"error: ")


def test_a_full_disk_is_one_line_and_leaves_nothing(python_source, tmp_path, monkeypatch, capsys):
    def full(*_: object) -> None:
        # /dev/full gives the kernel's own error.
        with open("/dev/full", "wb", buffering=0) as device:
            device.write(b"x")

    monkeypatch.setattr(write, "write_records", full)
    assert _code("--source", str(python_source), "--out", str(tmp_path)) == 1
    assert "the disk is full; CIFAR-10's records take 400 MB" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == [publish.LOCK_NAME]


@pytest.mark.parametrize("has_lock", [False, True])
def test_records_that_are_up_to_date_may_lie_in_a_folder_that_is_not_writable(has_lock, capsys):
    with open_folder() as folder:
        assert _code(*SMALL, "--out", str(folder)) == 0
        if not has_lock:
            (folder / publish.LOCK_NAME).unlink()
        os.chmod(folder, 0o555)
        capsys.readouterr()
        with unprivileged():
            assert _code(*SMALL, "--out", str(folder)) == 0
            assert "up to date" in capsys.readouterr().out
            for flags in (["--seed", "1"], ["--force"]):
                assert _code(*SMALL, *flags, "--out", str(folder)) == 1
                assert capsys.readouterr().err == f"error: {folder}/.lock: Permission denied\n"
        assert _code("verify", str(folder)) == 0


@pytest.mark.parametrize("out", ["/proc/nowhere", "/dev/null", "/dev/null/x", "LINK", "LINK/x"])
@pytest.mark.parametrize("command", [SMALL, ["download"]])
def test_a_place_that_cannot_be_a_folder_is_one_line(command, out, tmp_path, capsys):
    link = tmp_path / "link"
    link.symlink_to("gone")
    assert _code(*command, "--out", out.replace("LINK", str(link))) == 1
    reason = (
        "No such file or directory" if out[1] == "p" else "is no folder; --out must be a folder"
    )
    name = out.replace("LINK/x", "LINK").replace("LINK", str(link))
    assert capsys.readouterr().err == f"error: {name}: {reason}\n"


# Runs `python -m data_prep`, with Ctrl-C where numpy's C code loads datetime.
_INTERRUPTED = """
import os, runpy, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "datetime":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
runpy.run_module("data_prep", run_name="__main__", alter_sys=True)
"""


def test_ctrl_c_while_numpy_is_loaded_is_one_line_and_its_code(built):
    words = [sys.executable, "-c", _INTERRUPTED, "verify", str(built)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "error: interrupted; run the same command again to go on\n"


def test_a_lack_of_memory_is_said_and_no_file_is_blamed(tree, tmp_path, monkeypatch, capsys):
    def lack(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("cifar10.image_file.decode", lack)
    assert _code("--source", str(tree), "--out", str(tmp_path / "out")) == 1
    assert capsys.readouterr().err == (
        "error: out of memory: building CIFAR-10's records takes about 500 MB\n"
    )
