"""The commands: what they print, and what they do not accept."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data_prep import cli, sheet
from data_prep.folder import publish
from data_prep.tfrecord import read, write
from tests import shell
from tests.data_prep import made
from tests.failing_disk import flip_bit
from tests.unprivileged import open_folder, unprivileged

SMALL = ["--source", "synthetic", "--synthetic-size", "100"]


def _code(*words: str) -> int:
    try:
        return cli.main(words)
    except SystemExit as error:
        return int(error.code or 0)


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
        ([*SMALL, "--eval-fraction", "0.5"], "--eval-fraction is for image folders without a test"),
        ([*SMALL, "--eval-fraction", "1"], "must be a number between 0 and 1, got '1'"),
        (["--out", "x"], "required: --source"),
        (["--source", "synthetic", "--valid", "5"], "unrecognized arguments: --valid"),
        (
            ["frobnicate"],
            "frobnicate: the commands are convert, .*; --source names what to convert\n",
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
    out = [] if words[0] in ("frobnicate", "verify", "--out") else ["--out", str(tmp_path)]
    assert _code(*words, *out) == 2
    error = capsys.readouterr().err
    assert re.search(reason, error)
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_a_name_with_control_characters_cannot_write_on_the_terminal(tree, tmp_path, capsys):
    (tree / "train" / "cat" / "a\n\x1b[31mred.png").write_bytes(b"noise")
    assert _code("--source", str(tree), "--out", str(tmp_path / "out")) == 2
    error = capsys.readouterr().err
    assert "\x1b" not in error
    assert error.count("\n") == 1


def test_names_of_other_scripts_are_aligned_and_drawn_or_numbered(tree, tmp_path, capsys):
    names = {"airplane": "caf\u00e9", "bird": "\u732b", "cat": "\u72d7\u72d7", "deer": "Gr\u00fcn"}
    for split in ("train", "test"):
        for before, name in names.items():
            (tree / split / before).rename(tree / split / name)
    assert _code("--source", str(tree), "--out", str(tmp_path / "out")) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, columns in (("caf\u00e9", 4), ("\u732b", 2), ("\u72d7\u72d7", 4)):
        assert any(re.match(f"{name} {{{24 - columns - 1}}}[45] ", line) for line in lines), name
    assert _code("show", str(tmp_path / "out"), "--out", str(tmp_path / "grid.png")) == 0
    # The fonts that come with matplotlib have the letters of Europe.
    own, europe = (sheet._font(text, 17).getname() for text in ("ship", "Gr\u00fcn"))
    assert own != europe
    assert sheet._font("\U0010fffe", 17) is None
    printed = capsys.readouterr().out
    if sheet._font("\u732b", 17) is None:
        assert "since no font here has the letters: \u72d7\u72d7, \u732b." in printed
    else:
        assert "no font here" not in printed


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


def test_a_lack_of_memory_is_said_and_no_file_is_blamed(tree, tmp_path, monkeypatch, capsys):
    def lack(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("cifar10.image_decoding.decode", lack)
    assert _code("--source", str(tree), "--out", str(tmp_path / "out")) == 1
    assert capsys.readouterr().err == (
        "error: out of memory: building CIFAR-10's records takes about 500 MB\n"
    )


def test_the_sheet_holds_the_records_own_pixels_where_a_link_leads(built, tmp_path):
    path = tmp_path / "grid.png"
    path.symlink_to("new.png")
    assert cli.main(["show", str(built), "--out", str(path), "--split", "eval"]) == 0
    assert path.is_symlink()
    with Image.open(tmp_path / "new.png") as sheet:
        pixels = np.asarray(sheet)
    # Two eval images of class 0: the first tile is one of them, each pixel doubled.
    tile = pixels[76 : 76 + 64 : 2, 160 : 160 + 64 : 2].transpose(2, 0, 1).tobytes()
    examples = read.scan(built / "eval.tfrecords", [])
    airplanes = [image for image, label in examples if label == 0]
    assert len(airplanes) == 2
    assert tile in airplanes
    for seed in "01":
        (tmp_path / seed).mkdir()
        words = ["show", str(built), "--out", f"{tmp_path}/{seed}/a.png", "--count=1"]
        assert cli.main([*words, f"--seed={seed}"]) == 0
    assert (tmp_path / "0/a.png").read_bytes() != (tmp_path / "1/a.png").read_bytes()


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--count", "101"], "--count must be 1 to 100, got 101"),
        (["--out", "/nowhere/grid.png"], "/nowhere/grid.png: there is no folder /nowhere; make"),
        (["--out", "."], "error: .: --out must be a file that is called NAME.png"),
        (["--out", "train.tfrecords"], "--out must be a file that is called NAME.png"),
        (["--out", "link.png"], "link.png: --out must be a file that is called NAME.png"),
    ],
)
def test_what_cannot_be_drawn_says_why(flags, reason, built, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.png").symlink_to("manifest.json")
    assert cli.main(["show", str(built), *flags]) == 2
    assert reason in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["link.png"]


def test_show_names_a_damaged_record(built, tmp_path, capsys):
    flip_bit(Path(shutil.copy(built / "eval.tfrecords", tmp_path)), 2 * 3126 + 100)
    assert cli.main(["show", str(tmp_path), "--split", "eval"]) == 1
    assert "eval.tfrecords: record 2 (byte 6252): the CRC" in capsys.readouterr().err
    assert cli.main(["show", str(tmp_path), "--split", "train"]) == 2
    assert "holds no train records" in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_of_cifar_100_trains_is_reported_exported_and_predicts(tmp_path):
    names = made.FINE_NAMES
    source = made.tar(tmp_path / "c.tar.gz", made.cifar100_folder(tmp_path / "cifar-100-python"))
    assert _code("--source", str(source), "--labels", "fine", "--out", str(tmp_path / "data")) == 0
    (tmp_path / "a.png").write_bytes(made.png())
    program = f"{sys.executable} {shell.ROOT}/cifar10_main.py"
    shell.run(f"{program} --model=mlp --train-steps=4", tmp_path)
    predicted = shell.run(f"{program} --mode=predict --json a.png", tmp_path).stdout
    assert list(json.loads(predicted)["probabilities"]) == names
    assert names[7] in (tmp_path / "output" / "report.html").read_text()
    (model,) = (tmp_path / "output" / "export").glob("*/saved_model.pb")
    assert names[7].encode() in model.read_bytes()
