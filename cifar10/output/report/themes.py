"""The colours of pictures, which cannot take them from the page: those of report.css."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Theme:
    """The colours of one picture.

    Attributes:
      surface: behind it.
      ink: of its text.
      line: of its grid.
      train: of curves and of the colour scale's end.
      validation: of curves.
      on_train: of text on `train`.
    """

    surface: str
    ink: str
    line: str
    train: str
    validation: str
    on_train: str


LIGHT = Theme("#ffffff", "#5b6472", "#e4e7ec", "#2563eb", "#d9660b", "#ffffff")
DARK = Theme("#171b21", "#9aa4b2", "#2a313b", "#7aa7ff", "#f5a35c", "#0f1216")
