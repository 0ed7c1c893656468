"""The colours of pictures: those of report.css, which embedded pictures cannot read."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Theme:
    """The colours of one picture.

    Attributes:
      surface: colour of the background.
      ink: colour of text.
      line: colour of grid lines.
      train: colour of training curves and of the end of the heat map's scale.
      validation: colour of validation curves.
      on_train: colour of text on a background in `train`.
    """

    surface: str
    ink: str
    line: str
    train: str
    validation: str
    on_train: str


LIGHT = Theme("#ffffff", "#5b6472", "#e4e7ec", "#2563eb", "#d9660b", "#ffffff")
DARK = Theme("#171b21", "#9aa4b2", "#2a313b", "#7aa7ff", "#f5a35c", "#0f1216")
