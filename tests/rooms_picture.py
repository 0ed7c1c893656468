"""Draws the rooms of each package in layers, called floors: `python -m tests.rooms_picture`.

An arrow leads from a room to one that it may import. Arrows that follow from others are left out.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from textwrap import fill

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as LinePath

from tests.rooms import PACKAGES, ROOMS, Room, floors
from tests.shell import ROOT

_WIDTH, _HEIGHT = 2.1, 0.72  # size of a box, in inches like all lengths here
_ACROSS, _UP = 2.35, 1.12  # distance from one box to the next
_NAMELESS = ("__init__", "__main__")
_Place = tuple[float, float]
# Makes files reproducible to the last byte.
_STYLE = {"svg.hashsalt": "rooms", "svg.fonttype": "none"}


def main() -> None:
    """Writes docs/pictures/rooms-PACKAGE.svg."""
    for package in PACKAGES:
        draw(package, ROOT / "docs" / "pictures" / f"rooms-{package}.svg")


def draw(package: str, path: Path) -> None:
    """Draws one package.

    Args:
      package: name of the package.
      path: path of the SVG file to write.
    """
    rows = _rows(package)
    widest = max(map(len, rows))
    places = {
        room.name: (((widest - len(row)) / 2 + column) * _ACROSS, floor * _UP)
        for floor, row in enumerate(rows)
        for column, room in enumerate(row)
    }
    rooms = [room for row in rows for room in row]
    size = (widest * _ACROSS + 0.3, len(rows) * _UP)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(-0.3, size[0] - 0.3)
        axes.set_ylim(-0.2, size[1] - 0.2)
        axes.axis("off")
        for room in rooms:
            for below in _without_detours(room.name):
                _draw_arrow(axes, places[room.name], places[below], [*places.values()])
        for room in rooms:
            _draw_box(axes, room, places[room.name])
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path, metadata={"Date": None})


def _rows(package: str) -> list[list[Room]]:
    """Returns the rooms of each floor, from the lowest up, each roughly below its importers."""
    rooms = [room for room in ROOMS if room.package == package]
    rooms = [room for room in rooms if not room.name.endswith(_NAMELESS)]
    heights = floors(package)
    rows: list[list[Room]] = []
    across: dict[str, float] = {}
    for height in sorted({heights[room.name] for room in rooms}, reverse=True):
        row = [room for room in rooms if heights[room.name] == height]
        row.sort(key=lambda room: _middle(room, across))
        across |= {room.name: column - (len(row) - 1) / 2 for column, room in enumerate(row)}
        rows.append(row)
    return rows[::-1]


def _middle(room: Room, across: Mapping[str, float]) -> float:
    """Returns the mean horizontal position of the rooms from which arrows lead to this one."""
    above = [place for name, place in across.items() if room.name in _without_detours(name)]
    return fmean(above) if above else 0.0


def _without_detours(name: str) -> list[str]:
    """Returns the rooms that a room may import, without those that others of them may import."""
    ours = {room.name: room.ours for room in ROOMS}

    def reached(name: str) -> set[str]:
        return {name}.union(*(reached(below) for below in ours[name]))

    return [
        below
        for below in ours[name]
        if not any(below in reached(other) for other in ours[name] if other != below)
    ]


def _draw_arrow(axes: Axes, above: _Place, below: _Place, places: Sequence[_Place]) -> None:
    """Draws an arrow that passes between the boxes of the floors on its way."""
    start = (above[0] + _WIDTH / 2, above[1])
    end = (below[0] + _WIDTH / 2, below[1] + _HEIGHT)
    points = [start]
    floor = above[1] - _UP
    while floor > below[1] + _UP / 2:
        share = (start[1] - floor) / (start[1] - end[1])
        straight = start[0] + share * (end[0] - start[0])
        across = min(_gaps(places, floor), key=lambda gap: abs(gap - straight))
        points += [(across, floor + _HEIGHT), (across, floor)]
        floor -= _UP
    axes.add_patch(
        FancyArrowPatch(
            path=LinePath([*points, end]),
            arrowstyle="-|>",
            mutation_scale=9,
            color="0.55",
            lw=0.9,
            joinstyle="round",
        )
    )


def _gaps(places: Sequence[_Place], floor: float) -> list[float]:
    """Returns the horizontal positions at which an arrow can pass a floor beside its boxes."""
    lefts = sorted(x for x, y in places if abs(y - floor) < _UP / 2)
    half = (_ACROSS - _WIDTH) / 2
    return [*(left - half for left in lefts), lefts[-1] + _WIDTH + half]


def _draw_box(axes: Axes, room: Room, place: _Place) -> None:
    box = FancyBboxPatch(
        place, _WIDTH, _HEIGHT, boxstyle="round,pad=0,rounding_size=0.08", fc="#eef3fa", ec="0.4"
    )
    axes.add_patch(box)
    middle = place[0] + _WIDTH / 2
    name = room.name.partition(".")[2]
    axes.text(
        middle, place[1] + _HEIGHT - 0.09, name, ha="center", va="top", weight="bold", size=11
    )
    axes.text(middle, place[1] + 0.22, fill(room.job, 30), ha="center", va="center", size=7.5)


if __name__ == "__main__":
    main()
