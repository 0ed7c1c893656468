import os

import numpy as np
import pytest
from PIL import Image

from data_prep import cli
from data_prep.tfrecord import read


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


def test_the_seed_chooses_the_images(built, tmp_path):
    def sheet(seed: str) -> bytes:
        path = tmp_path / "grid.png"
        flags = ["--count", "3", "--seed", seed, "--out", str(path)]
        assert cli.main(["show", str(built), *flags]) == 0
        return path.read_bytes()

    assert sheet("1") == sheet("1") != sheet("2")


@pytest.mark.parametrize(
    ("flags", "code", "reason"),
    [
        (["--count", "101"], 2, "--count must be 1 to 100, got 101"),
        (["--out", "/nowhere/grid.png"], 2, "/nowhere/grid.png: there is no folder /nowhere; make"),
        (["--out", "."], 2, "error: .: --out must be a file that is called NAME.png"),
        (["--out", "train.tfrecords"], 2, "--out must be a file that is called NAME.png"),
        (["--out", "link.png"], 2, "link.png: --out must be a file that is called NAME.png"),
    ],
)
def test_what_cannot_be_drawn_says_why(flags, code, reason, built, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.png").symlink_to("manifest.json")
    assert cli.main(["show", str(built), *flags]) == code
    assert reason in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["link.png"]


def test_show_names_a_damaged_record(built, tmp_path, capsys):
    content = bytearray((built / "eval.tfrecords").read_bytes())
    content[2 * 3126 + 100] ^= 1
    (tmp_path / "eval.tfrecords").write_bytes(content)
    assert cli.main(["show", str(tmp_path), "--split", "eval"]) == 1
    assert "eval.tfrecords: record 2 (byte 6252): the CRC" in capsys.readouterr().err
    assert cli.main(["show", str(tmp_path), "--split", "train"]) == 2
    assert "holds no train records" in capsys.readouterr().err
