"""What prediction prints: a line for each image file, in words or as JSON."""

import json
import math
from collections.abc import Sequence
from typing import Any, Optional

from cifar10.errors import UserError
from cifar10.host.console import one_line, say
from cifar10.image_file import Decoded
from cifar10.schema import CROP, HEIGHT, PAD, STRETCH, WIDTH
from cifar10_program.streams import complain

_SHOWN = 3  # classes per line
_WORDS = {CROP: "cropped", PAD: "padded", STRETCH: "stretched"}


class Printer:
    """Prints what each file shows, or why it could not be used.

    Args:
      paths: the names of all files, for the width of the first column.
      class_names: the names of the ten classes, in the order of the labels.
      resize: how images of other sizes are brought to 32x32, a value of `schema.RESIZES`.
      as_json: whether to print JSON.
    """

    def __init__(
        self, paths: Sequence[str], class_names: Sequence[str], resize: str, as_json: bool
    ) -> None:
        self._count, self._width = len(paths), max(map(len, paths))
        self._class_names, self._resize, self._as_json = class_names, resize, as_json
        self._errors: list[str] = []

    def answer(self, path: str, image: Decoded, probabilities: Any) -> None:
        """Prints what a file shows.

        Args:
          path: the file.
          image: the image in it.
          probabilities: of the ten classes, float [10].
        """
        resize = self._resize if image.was_resized else None
        if self._as_json:
            say(as_json(path, image.size, resize, probabilities, self._class_names))
            return
        line = f"{one_line(path):<{self._width}}  {describe(probabilities, self._class_names)}"
        if resize is not None:
            width, height = image.size
            line += f"  ({width}x{height}, {_WORDS[resize]} to {WIDTH}x{HEIGHT})"
        say(line)

    def refuse(self, path: str, error: str) -> None:
        """Notes why a file could not be used, and prints it; a single file's error is raised."""
        self._errors.append(error)
        if self._as_json:
            say(json.dumps({"file": path, "error": error}))
        if self._count > 1:
            complain(f"error: {one_line(error)}")

    def finish(self) -> None:
        """Ends the list of files.

        Raises:
          UserError: a file could not be used.
        """
        if self._errors and self._count == 1:
            raise UserError(self._errors[0])
        if self._errors:
            raise UserError(
                f"{len(self._errors):,} of {self._count:,} image files could not be used; the "
                "lines above name them"
            )


def describe(probabilities: Any, class_names: Sequence[str]) -> str:
    """Formats probabilities, float [10], as `cat 93.1 %, dog 4.0 %, deer 1.1 %`."""
    order = sorted(range(len(class_names)), key=lambda index: -probabilities[index])
    return ", ".join(
        f"{one_line(class_names[index])} {100 * probabilities[index]:.1f} %"
        for index in order[:_SHOWN]
    )


def as_json(
    path: str,
    size: tuple[int, int],
    resize: Optional[str],
    probabilities: Any,
    class_names: Sequence[str],
) -> str:
    """Returns the JSON object of a file, in a line; docs/outputs.md lists its fields."""
    shares = [float(share) for share in probabilities]
    best = max(range(len(shares)), key=shares.__getitem__)
    return json.dumps(
        {
            "file": path,
            "class": class_names[best],
            "class_id": best,
            "probabilities": {
                name: share if math.isfinite(share) else None
                for name, share in zip(class_names, shares)
            },
            "size": size,
            "resize": resize,
        }
    )
