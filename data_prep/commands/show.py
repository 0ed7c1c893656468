"""`show`: draws a labelled contact sheet of a folder of records, a row for each class."""

import argparse
import io
import os
import random
from pathlib import Path
from typing import Optional

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from cifar10 import schema
from cifar10_program import DATA, started_as
from data_prep.commands.output import say
from data_prep.errors import DamageError, UsageError
from data_prep.folder import manifest as manifests
from data_prep.folder import publish
from data_prep.folder.manifest import Manifest
from data_prep.sources import synthetic
from data_prep.tfrecord import read

MAX_COUNT = 100

_SCALE = 2  # A pixel of an image becomes 2x2 pixels of the sheet.
_TILE, _GAP, _MARGIN = schema.WIDTH * _SCALE, 6, 28
_LABELS_WIDTH, _TITLE_HEIGHT = 132, 74
_PAPER, _INK, _FAINT = "#ffffff", "#1b1f24", "#6a737d"
_EMPTY = "#f0f2f4"

Samples = list[list[bytes]]


def run(arguments: argparse.Namespace) -> int:
    """Draws the contact sheet; returns the exit code."""
    path = Path(arguments.out)
    draw(Path(arguments.folder), arguments.split, path, arguments.count, arguments.seed)
    say(f"{path}: {arguments.split}, up to {arguments.count} images a class.")
    return 0


def draw(folder: Path, split: str, path: Path, count: int, seed: int) -> None:
    """Writes a PNG with up to `count` images of each class, drawn at random from `split`.

    If `path` is a symbolic link, the link stays, and the file that it names is written.

    Raises:
      UsageError: no such folder or split, `count` is too large for a picture, or `path` is a folder
        or a device, or has the name of a file of records.
      DamageError: the folder is incomplete or a record is damaged.
    """
    if count > MAX_COUNT:
        raise UsageError(f"--count must be 1 to {MAX_COUNT}, got {count}")
    path = _checked_place(path)
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give a folder of .tfrecords")
    if publish.is_incomplete(folder):
        raise DamageError(f"{folder}: a build did not finish; run {started_as(DATA)} again")
    manifest = manifests.read(folder)
    names = publish.record_files(folder, ours=manifest is not None)
    paths = [folder / name for name in names if _split_of(name) == split]
    if not paths:
        raise UsageError(f"{folder}: holds no {split} records")
    samples, total = _sample(paths, count, seed)
    class_names = schema.CLASS_NAMES if manifest is None else manifest.class_names
    sheet = _sheet(samples, class_names, f"{split}: {total:,} images", _subtitle(folder, manifest))
    content = io.BytesIO()
    sheet.save(content, format="PNG", optimize=True)
    publish.write_whole(path, content.getvalue())


def _split_of(name: str) -> Optional[str]:
    parsed = schema.parse_record_name(name)
    return parsed and parsed[0]


def _checked_place(path: Path) -> Path:
    """Returns the path of the file to write, without symbolic links.

    Raises:
      UsageError: see `draw`.
    """
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; --out must be a file, such as {path / 'grid.png'}")
    real = Path(os.path.realpath(path))
    if not real.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {real.parent}; make it, or change --out")
    if os.path.lexists(real) and not real.is_file():  # A renamed file would replace a device.
        raise UsageError(
            f"{path}: is no regular file, and would be replaced; give --out another name, such as "
            f"{path.with_name('grid.png')}"
        )
    if publish.is_read(path.name) or publish.is_read(real.name):
        raise UsageError(
            f"{path}: folders of records have files of this name; give --out another, such as "
            f"{path.with_name('grid.png')}"
        )
    return real


def _sample(paths: list[Path], count: int, seed: int) -> tuple[Samples, int]:
    """Chooses up to `count` images of each class in one pass, all of a class equally likely.

    Returns:
      The chosen images of each class, and the number of images in the files.

    Raises:
      DamageError: a record is damaged.
    """
    rng = random.Random(seed)
    chosen: Samples = [[] for _ in range(schema.NUM_CLASSES)]
    seen = [0] * schema.NUM_CLASSES

    def take(image: bytes, label: int) -> None:
        seen[label] += 1
        if len(chosen[label]) < count:
            chosen[label].append(image)
        elif (place := rng.randrange(seen[label])) < count:
            chosen[label][place] = image

    for path in paths:
        damages = read.scan(path, take).damages
        if damages:
            raise DamageError(damages[0])
    return chosen, sum(seen)


def _subtitle(folder: Path, manifest: Optional[Manifest]) -> str:
    if manifest is None:
        return f"{folder.resolve().name}, no manifest"
    if manifest.kind == synthetic.KIND:
        return "synthetic, not CIFAR-10"
    return f"{manifest.name}, {manifest.kind}"


def _sheet(
    samples: Samples, class_names: tuple[str, ...], title: str, subtitle: str
) -> Image.Image:
    columns = max(1, *(len(row) for row in samples))
    step = _TILE + _GAP
    width = max(2 * _MARGIN + _LABELS_WIDTH + columns * step - _GAP, 480)
    height = 2 * _MARGIN + _TITLE_HEIGHT + schema.NUM_CLASSES * step - _GAP
    sheet = Image.new("RGB", (width, height), _PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((_MARGIN, _MARGIN), title, _INK, ImageFont.load_default(26))
    pen.text((_MARGIN, _MARGIN + 34), subtitle, _FAINT, ImageFont.load_default(15))
    font = ImageFont.load_default(17)
    for row, (name, images) in enumerate(zip(class_names, samples)):
        top = _MARGIN + _TITLE_HEIGHT + row * step
        pen.text((_MARGIN, top + _TILE // 2), name, _INK, font, anchor="lm")
        for column in range(columns):
            place = (_MARGIN + _LABELS_WIDTH + column * step, top)
            if column < len(images):
                sheet.paste(_tile(images[column]), place)
            else:
                corner = (place[0] + _TILE - 1, place[1] + _TILE - 1)
                pen.rectangle((place, corner), _EMPTY)
    return sheet


def _tile(image: bytes) -> Image.Image:
    shape = (schema.CHANNELS, schema.HEIGHT, schema.WIDTH)
    pixels = np.frombuffer(image, np.uint8).reshape(shape).transpose(1, 2, 0)
    # NEAREST, so that the sheet shows exactly the pixels of the records.
    return Image.fromarray(np.ascontiguousarray(pixels)).resize(
        (_TILE, _TILE), Image.Resampling.NEAREST
    )
