"""Text of other programs, made safe to print on a terminal."""

# Control characters of C0, except the tab, and of C1: in escape codes they clear the screen, write
# to the clipboard or change the title.
_CONTROLS = [*range(9), *range(10, 32), *range(127, 160)]
# Characters that make a terminal show the others in another order.
_DIRECTIONS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_LINE_ENDS = [0x2028, 0x2029]
# JSON can hold halves of characters, which no terminal and no file can take.
_HALVES = range(0xD800, 0xE000)
_REMOVED = dict.fromkeys([*_CONTROLS, *_DIRECTIONS, *_LINE_ENDS, *_HALVES])


def plain(line: str) -> str:
    """Returns a line without characters that control the terminal; tabs stay.

    What follows an escape character stays as text.
    """
    return line.translate(_REMOVED)


def plain_lines(text: str) -> str:
    """Returns a text of several lines, each of them as `plain` returns it."""
    return "\n".join(map(plain, text.split("\n")))
