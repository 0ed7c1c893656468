import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data_prep import cli
from data_prep.tfrecord import read
from tests import failing_disk


def test_the_sheet_holds_the_records_own_pixels(built: Path, tmp_path: Path) -> None:
    path = tmp_path / "grid.png"
    assert cli.main(["show", str(built), "--out", str(path), "--split", "eval"]) == 0
    with Image.open(path) as sheet:
        pixels = np.asarray(sheet)
    # Two eval images of class 0: the first tile is one of them, each pixel doubled.
    tile = pixels[102 : 102 + 64 : 2, 160 : 160 + 64 : 2].transpose(2, 0, 1).tobytes()
    images: list[tuple[bytes, int]] = []
    read.scan(built / "eval.tfrecords", lambda *example: images.append(example))
    airplanes = [image for image, label in images if label == 0]
    assert len(airplanes) == 2
    assert tile in airplanes


def test_the_seed_chooses_the_images(built: Path, tmp_path: Path) -> None:
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
    ],
)
def test_what_cannot_be_drawn_says_why(
    flags: list[str], code: int, reason: str, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["show", str(built), *flags]) == code
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["train.tfrecords", "eval-00000-of-00002.tfrecords", "manifest.json", "INCOMPLETE"]
)
def test_a_sheet_does_not_take_the_place_of_records(
    name: str, built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(built, tmp_path / "out")
    assert cli.main(["show", str(out), "--out", str(out / name)]) == 2
    assert capsys.readouterr().err == (
        f"error: {out / name}: folders of records have files of this name; give --out another, "
        f"such as {out / 'grid.png'}\n"
    )
    assert cli.main(["verify", str(out)]) == 0


@pytest.mark.parametrize("place", [".", "/", "a folder", ".."])
def test_a_sheet_is_no_folder(
    place: str,
    built: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a folder").mkdir()
    assert cli.main(["show", str(built), "--out", place]) == 2
    grid = str(Path(place) / "grid.png")
    assert capsys.readouterr().err == (
        f"error: {place}: is a folder; --out must be a file, such as {grid}\n"
    )


@pytest.mark.parametrize("name", ["pipe", "link", "circle"])
def test_what_is_no_regular_file_is_not_replaced(
    name: str, built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")  # As a device, which only root can make.
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "circle").symlink_to("circle")
    assert cli.main(["show", str(built), "--out", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path / name}: is no regular file, and would be replaced; give --out another "
        f"name, such as {tmp_path / 'grid.png'}\n"
    )
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["circle", "link", "pipe"]


def test_a_link_to_the_sheet_is_followed(built: Path, tmp_path: Path) -> None:
    (tmp_path / "sheets").mkdir()
    link = tmp_path / "grid.png"
    link.symlink_to("sheets/new.png")
    assert cli.main(["show", str(built), "--out", str(link)]) == 0
    assert link.is_symlink()
    assert os.listdir(tmp_path / "sheets") == ["new.png"]
    assert link.read_bytes().startswith(b"\x89PNG")


def test_a_link_does_not_lead_to_the_place_of_records(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(built, tmp_path / "out")
    (tmp_path / "grid.png").symlink_to("out/manifest.json")
    assert cli.main(["show", str(out), "--out", str(tmp_path / "grid.png")]) == 2
    assert "folders of records have files of this name" in capsys.readouterr().err
    assert cli.main(["verify", str(out)]) == 0


def test_show_names_a_damaged_record(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray((built / "eval.tfrecords").read_bytes())
    content[2 * 3126 + 100] ^= 1
    (tmp_path / "eval.tfrecords").write_bytes(content)
    assert cli.main(["show", str(tmp_path), "--split", "eval"]) == 1
    assert "eval.tfrecords: record 2 (byte 6252): the CRC" in capsys.readouterr().err
    assert cli.main(["show", str(tmp_path), "--split", "train"]) == 2
    assert "holds no train records" in capsys.readouterr().err


def test_a_full_disk_leaves_no_part_of_a_sheet(
    built: Path, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_disk.fill(small_disk)
    assert cli.main(["show", str(built), "--out", str(small_disk / "grid.png")]) == 1
    assert capsys.readouterr().err == "error: the disk is full; free some space\n"
    assert [path.name for path in small_disk.iterdir()] == ["filler"]
