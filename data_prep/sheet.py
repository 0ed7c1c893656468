"""Draws a labelled contact sheet of a folder of records, a row for each class."""

import contextlib
import functools
import os
import random
from pathlib import Path
from typing import Any, Optional

import numpy as np
import PIL
from PIL import Image, ImageDraw, ImageFont

from cifar10 import schema
from cifar10_program import DATA, started_as
from data_prep.errors import DamageError, UsageError
from data_prep.folder import manifest as manifests
from data_prep.folder import publish
from data_prep.tfrecord import read

MAX_COUNT = 100

_SHAPE = (schema.CHANNELS, schema.HEIGHT, schema.WIDTH)
_SCALE = 2  # A pixel of an image becomes 2x2 pixels of the sheet.
_TILE, _GAP, _MARGIN = schema.WIDTH * _SCALE, 6, 28
_LABELS_WIDTH, _TITLE_HEIGHT = 132, 48
_FONT_FOLDERS = (
    *("/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts"),
    *("/Library/Fonts", "/System/Library/Fonts"),
)
_FONTS = "*.[ot]t[cf]"
# Comes with matplotlib, and has the letters of Europe.
_EUROPE = Path(PIL.__file__).parents[1] / "matplotlib/mpl-data/fonts/ttf/DejaVuSans.ttf"
_ABSENT = "\U0010ffff"  # No font has it, so it is drawn as other letters that a font lacks.
_PAPER, _INK = "#ffffff", "#1b1f24"


def draw(folder: Path, split: str, path: Path, count: int, seed: int) -> list[str]:
    """Writes a PNG with up to `count` images of each class, drawn at random from `split`.

    Returns:
      The names of the classes for which there is no font, so that their numbers stand there.

    Raises:
      UsageError: no such folder or split, `count` is too large for a picture, or `path` does not
        end in .png.
      DamageError: the folder is incomplete or a record is damaged.
    """
    if count > MAX_COUNT:
        raise UsageError(f"--count must be 1 to {MAX_COUNT}, got {count}")
    # No file of a folder of records has such a name.
    if not os.path.realpath(path).lower().endswith(".png"):
        raise UsageError(f"{path}: --out must be a file that is called NAME.png")
    parent = os.path.dirname(path)
    if not os.path.isdir(parent or "."):
        raise UsageError(f"{path}: there is no folder {parent}; make it, or choose another --out")
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give a folder of .tfrecords")
    if (folder / schema.INCOMPLETE_NAME).exists():
        raise DamageError(f"{folder}: a build did not finish; run {started_as(DATA)} again")
    manifest = manifests.read(folder)
    names = publish.record_files(folder, ours=manifest is not None)
    if split not in names.values():
        raise UsageError(f"{folder}: holds no {split} records")
    class_names = schema.CLASS_NAMES if manifest is None else manifest.class_names
    found: list[list[bytes]] = [[] for _ in class_names]
    damages: list[str] = []
    for name in (name for name, of_split in names.items() if of_split == split):
        for image, label in read.scan(folder / name, damages, len(class_names)):
            found[label].append(image)
    if damages:
        raise DamageError(damages[0])
    rng = random.Random(seed)
    samples = [rng.sample(images, min(count, len(images))) for images in found]
    name = folder.resolve().name if manifest is None else manifest.source.name
    title = f"{split}: {sum(map(len, found)):,} images of {name}"
    labels = [(name, _font(name, 17)) for name in class_names]
    _sheet(samples, labels, title).save(path, format="PNG", optimize=True)
    return [name for name, font in labels if font is None]


@functools.cache
def _load(file: Optional[Path], size: int) -> Any:
    return ImageFont.load_default(size) if file is None else ImageFont.truetype(file, size)


def _font(text: str, size: int) -> Any:
    """Returns a font with all letters of a text; None: neither Pillow nor this machine has one."""
    for file in _font_files():
        with contextlib.suppress(OSError):  # A file may be missing or damaged.
            font = _load(file, size)
            absent = bytes(font.getmask(_ABSENT))
            if all(bytes(font.getmask(letter)) != absent for letter in text if letter.strip()):
                return font
    return None


@functools.cache
def _font_files() -> list[Optional[Path]]:
    """Returns the files of fonts, best first; None is Pillow's own, with the letters of English."""
    found = [path for folder in _FONT_FOLDERS for path in Path(folder).expanduser().rglob(_FONTS)]
    # The plain form of a font has a shorter name than its bold and slanted ones.
    return [None, _EUROPE, *sorted(found, key=lambda path: (len(path.name), path))]


def _sheet(samples: list[list[bytes]], labels: list[tuple[str, Any]], title: str) -> Image.Image:
    columns = max(1, *(len(row) for row in samples))
    step = _TILE + _GAP
    width = max(2 * _MARGIN + _LABELS_WIDTH + columns * step - _GAP, 480)
    height = 2 * _MARGIN + _TITLE_HEIGHT + len(samples) * step - _GAP
    sheet = Image.new("RGB", (width, height), _PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((_MARGIN, _MARGIN), title, _INK, _font(title, 26) or _load(None, 26))
    for row, ((name, font), images) in enumerate(zip(labels, samples)):
        top = _MARGIN + _TITLE_HEIGHT + row * step
        text = f"class {row}" if font is None else name
        middle = (_MARGIN, top + _TILE // 2)
        pen.text(middle, text, _INK, font or _load(None, 17), anchor="lm")
        for column, image in enumerate(images):
            pixels = np.frombuffer(image, np.uint8).reshape(_SHAPE).transpose(1, 2, 0)
            # Repeated, so that the sheet shows exactly the pixels of the records.
            tile = Image.fromarray(pixels.repeat(_SCALE, axis=0).repeat(_SCALE, axis=1))
            sheet.paste(tile, (_MARGIN + _LABELS_WIDTH + column * step, top))
    return sheet
