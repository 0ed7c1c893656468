"""The colours of pictures: those of report.css, which embedded pictures cannot read."""

import re
from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Theme:
    """The colours of one picture.

    Attributes:
      surface: colour of the background.
      ink: colour of text.
      line: colour of grid lines.
      train: colour of training curves and of the end of the heat map's scale.
      validation: colour of validation curves.
    """

    surface: str
    ink: str
    line: str
    train: str
    validation: str


LIGHT = Theme("#ffffff", "#5b6472", "#e4e7ec", "#2563eb", "#d9660b")
DARK = Theme("#171b21", "#9aa4b2", "#2a313b", "#7aa7ff", "#f5a35c")


def in_dark(svg: bytes) -> bytes:
    """Returns a drawing with the colours of the dark theme in the place of the light one's."""
    colours = dict(zip(astuple(LIGHT), astuple(DARK)))

    def other(found: re.Match[bytes]) -> bytes:
        colour = found[0].decode()
        return colours.get(colour, colour).encode()

    return re.sub(rb"#[0-9a-f]{6}\b", other, svg)
