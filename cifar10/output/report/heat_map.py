"""Draws the confusion matrix as a heat map, with Pillow: matplotlib takes five times as long."""

import functools
import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib import font_manager
from PIL import Image, ImageColor, ImageDraw, ImageFont

from cifar10.output.report.confusion import shares
from cifar10.output.report.themes import LIGHT, Theme

# In pixels. The names of true classes are left of the cells, those of predicted ones above them.
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 1080, 1000, 184, 160, 20, 30
_FONT_SIZE, _GAP, _EDGE = 22, 10, 18
_SLANT = 40  # degrees, of the names above the cells


def confusion_matrix_png(
    matrix: npt.NDArray[np.int64], class_names: Sequence[str], theme: Theme = LIGHT
) -> bytes:
    """Draws the matrix as a heat map with counts.

    Args:
      matrix: counts, [n, n]; rows are true classes, columns predicted ones.
      class_names: n names.
      theme: the picture's colours.

    Returns:
      A PNG, 1080 by 1000 pixels.
    """
    matrix = np.asarray(matrix)
    # One line each: Pillow does not place other text by its base line.
    picture = _frame(tuple(" ".join(name.split()) for name in class_names), theme).copy()
    draw = ImageDraw.Draw(picture)
    lowest, highest = (np.array(ImageColor.getrgb(one)) for one in (theme.surface, theme.train))
    for (label, predicted), share in np.ndenumerate(shares(matrix)):
        left, top, right, bottom = _cell(label, predicted, len(class_names))
        # Mistakes are a few per cent of a row; the square root makes them visible.
        red, green, blue = np.rint(lowest + (highest - lowest) * np.sqrt(share)).astype(int)
        draw.rectangle((left, top, right - 1, bottom - 1), fill=(int(red), int(green), int(blue)))
        images = matrix[label, predicted]
        draw.text(
            ((left + right) // 2, (top + bottom) // 2),
            f"{images:,}" if images else "·",
            fill=theme.on_train if share > 0.25 else theme.ink,
            font=_font(),
            anchor="mm",
        )
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def _cell(label: int, predicted: int, count: int) -> tuple[int, int, int, int]:
    """Returns left, top, right and bottom of a cell, of `count` in each direction, in pixels."""
    left, right = ((_WIDTH - _LEFT - _RIGHT) * at // count for at in (predicted, predicted + 1))
    top, bottom = ((_HEIGHT - _TOP - _BOTTOM) * at // count for at in (label, label + 1))
    return _LEFT + left, _TOP + top, _LEFT + right, _TOP + bottom


@functools.lru_cache(maxsize=2)
def _frame(class_names: tuple[str, ...], theme: Theme) -> Image.Image:
    """Draws what all pictures of these classes have in common: the names, and those of the axes."""
    picture = Image.new("RGB", (_WIDTH, _HEIGHT), theme.surface)
    draw, count = ImageDraw.Draw(picture), len(class_names)
    for index, name in enumerate(class_names):
        left, top, right, bottom = _cell(index, index, count)
        place = (_LEFT - _GAP, (top + bottom) // 2)
        draw.text(place, name, fill=theme.ink, font=_font(), anchor="rm")
        _draw_turned(picture, (left + right) // 2, _TOP - _GAP, name, _SLANT, "ls", theme.ink)
    middle = ((_LEFT + _WIDTH - _RIGHT) // 2, (_TOP + _HEIGHT - _BOTTOM) // 2)
    draw.text((middle[0], _EDGE), "predicted", fill=theme.ink, font=_font(), anchor="mm")
    _draw_turned(picture, _EDGE, middle[1], "true", 90, "mm", theme.ink)
    return picture


def _draw_turned(
    picture: Image.Image, x: int, y: int, text: str, degrees: int, anchor: str, ink: str
) -> None:
    """Draws text whose anchor is at (x, y), turned to the left around it."""
    reach = int(_font().getlength(text)) + _FONT_SIZE
    mask = Image.new("L", (2 * reach, 2 * reach))
    ImageDraw.Draw(mask).text((reach, reach), text, fill=255, font=_font(), anchor=anchor)
    turned = mask.rotate(degrees, Image.Resampling.BICUBIC)
    picture.paste(ink, (x - reach, y - reach), turned)


@functools.cache
def _font() -> ImageFont.FreeTypeFont:
    """Returns matplotlib's font, which is the one of the charts and has many scripts."""
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), _FONT_SIZE)
