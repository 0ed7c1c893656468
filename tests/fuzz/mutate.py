"""Makes hostile inputs from valid ones.

All choices come from a `random.Random`: a seeded one in long runs, and in tests one of hypothesis,
which can then reduce a failing input.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

Form = Callable[[random.Random, Sequence[bytes]], bytes]

LONGEST = 1 << 20  # bytes of an input

_SIZES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40)
_MARKS = (b"\0", b"\n", b"\r\n", b"\xff" * 8, b"..", b"/", b"%s%n", b"\x1b[2J", b"\xc3\x28", b"=")
_WORDS = (
    "", " ", "\0", "\n", "-1", "0", "nan", "inf", "-inf", "1e400", "1e-400", "0x10", "1_000", "+1",
    "9" * 400, "9" * 5000, "-" + "9" * 400, "true", "null", "~", "*a", "&a", "!!python/object:os",
    "<<", "../..", "/dev/null", "\x1b]0;x\x07", "\u202e", "\u2028", "\ud800", "\U0001f600", "٣",
    "²", "(null)", "{", "}", "[", "]", "[" * 3000, "{\"a\":" * 3000, "- " * 3000, "=", ":", ",",
    "|", "@", "%", "a" * 70000, "None", "1.5", "1,5", "''", "\"",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 0.5, float("nan"), float("inf"),
    1e308, "", "x", "0", "a\nb", "\0", "\x1b[2J", "\ud800", "../../etc", "9" * 5000, [], {}, [[]],
    {"": None}, [None], "a" * 70000,
)  # fmt: skip


def of_bytes(rng: random.Random, examples: Sequence[bytes]) -> bytes:
    """Changes bytes: flips, cuts, repeats, joins, and writes extreme lengths."""
    data = bytearray(rng.choice(examples))
    if rng.randrange(20) == 0:
        data = bytearray(_noise(rng, rng.randrange(64)))
    for _ in range(1 + rng.randrange(4)):
        _change_bytes(rng, data, examples)
    return bytes(data[:LONGEST])


def of_text(rng: random.Random, examples: Sequence[bytes]) -> bytes:
    """Changes UTF-8 text: puts words in, takes parts out, and sometimes changes bytes."""
    text = rng.choice(examples).decode()
    for _ in range(1 + rng.randrange(4)):
        text = _change_text(rng, text)
    data = text.encode("utf-8", "surrogatepass")
    return of_bytes(rng, [data]) if rng.randrange(4) == 0 else data[:LONGEST]


def of_json(rng: random.Random, examples: Sequence[bytes]) -> bytes:
    """Changes values, keys and the nesting of JSON, and sometimes its text."""
    value = json.loads(rng.choice(examples))
    for _ in range(1 + rng.randrange(3)):
        value = _change_value(rng, value)
    data = json.dumps(value).encode()
    return of_text(rng, [data]) if rng.randrange(4) == 0 else data[:LONGEST]


def of_lines(rng: random.Random, examples: Sequence[bytes]) -> bytes:
    """Changes lines of JSON, and leaves out, repeats or swaps some."""
    lines = rng.choice(examples).splitlines()
    for _ in range(1 + rng.randrange(3)):
        place = rng.randrange(len(lines))
        try:
            lines[place] = of_json(rng, [lines[place]])
        except (ValueError, RecursionError):  # not JSON, or not any more
            lines[place] = of_bytes(rng, [lines[place]])
        if rng.randrange(4) == 0:
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    return b"\n".join(lines)[:LONGEST] + (b"" if rng.randrange(8) == 0 else b"\n")


def of_words(rng: random.Random, examples: Sequence[bytes]) -> bytes:
    """Changes the words of a command line, which NUL bytes separate."""
    words = rng.choice(examples).decode().split("\0")
    for _ in range(1 + rng.randrange(3)):
        place = rng.randrange(len(words))
        flag, equals, value = words[place].partition("=")
        choice = rng.randrange(6)
        if choice == 0:
            words[place] = f"{flag}={rng.choice(_WORDS)}"
        elif choice == 1:
            words[place] = rng.choice(_WORDS)
        elif choice == 2:
            words.insert(place, rng.choice(rng.choice(examples).decode().split("\0")))
        elif choice == 3:
            words[place] = (
                f"{flag}={_change_text(rng, value)}" if equals else _change_text(rng, flag)
            )
        elif choice == 4:
            words[place] = flag
        else:
            words.append(rng.choice(words))
    return "\0".join(word.replace("\0", "") for word in words).encode("utf-8", "surrogatepass")


def words_of(data: bytes) -> list[str]:
    """Returns the words of a command line as the system gives them to a program."""
    return [word.decode("utf-8", "surrogateescape") for word in data.split(b"\0")]


def exit_code(run: Callable[[], Any]) -> Any:
    """Returns what a command returns, or the exit code by which it ends the program."""
    try:
        return run()
    except SystemExit as ended:
        return ended.code


def _noise(rng: random.Random, count: int) -> bytes:
    return bytes(rng.randrange(256) for _ in range(count))


def _change_bytes(rng: random.Random, data: bytearray, examples: Sequence[bytes]) -> None:
    place = rng.randrange(len(data) + 1)
    end = min(len(data), place + 1 + rng.randrange(1 << rng.randrange(12)))
    choice = rng.randrange(9)
    if choice == 0 and place < len(data):
        data[place] ^= 1 << rng.randrange(8)
    elif choice == 1:
        data[place:end] = _noise(rng, min(8, end - place))
    elif choice == 2:
        del data[place:end]
    elif choice == 3:
        data[place:place] = bytes(data[place:end]) * rng.choice((1, 2, 100))
    elif choice == 4:
        del data[place:]
    elif choice == 5:
        other = rng.choice(examples)
        start = rng.randrange(len(other) + 1)
        data[place:] = other[start:]
    elif choice == 6:
        size, width = rng.choice(_SIZES), rng.choice((1, 2, 4, 8))
        order = rng.choice(("little", "big"))
        number = (size % (1 << 8 * width)).to_bytes(width, order)  # type: ignore[arg-type]
        data[place : place + width] = number
    elif choice == 7:
        data[place:place] = rng.choice(_MARKS)
    else:
        _change_number(rng, data)


def _change_number(rng: random.Random, data: bytearray) -> None:
    """Replaces a number in digits, as headers and texts have them."""
    starts = [i for i, byte in enumerate(data[:4096]) if 48 <= byte <= 57]
    if starts:
        start = rng.choice(starts)
        end = start
        while end < len(data) and 48 <= data[end] <= 57:
            end += 1
        data[start:end] = rng.choice((b"0", b"-1", b"7" * (end - start), b"9" * 30, b"9" * 5000))


def _change_text(rng: random.Random, text: str) -> str:
    place = rng.randrange(len(text) + 1)
    end = min(len(text), place + 1 + rng.randrange(1 << rng.randrange(8)))
    choice = rng.randrange(6)
    if choice == 0:
        return text[:place] + rng.choice(_WORDS) + text[place:]
    if choice == 1:
        return text[:place] + rng.choice(_WORDS) + text[end:]
    if choice == 2:
        return text[:place] + text[end:]
    if choice == 3:
        return text[:place] + text[place:end] * rng.choice((2, 3, 200)) + text[end:]
    if choice == 4:
        return text[:place]
    parts = text.split("\n")
    chosen = rng.randrange(len(parts))
    parts[chosen] = " " * rng.randrange(4) + parts[rng.randrange(len(parts))]
    return "\n".join(parts)


def _change_value(rng: random.Random, value: Any) -> Any:
    """Returns JSON in which one value or key, at a random depth, is another one."""
    if isinstance(value, (dict, list)) and value and rng.randrange(5):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = rng.choice(keys)
        copied: Any = dict(value) if isinstance(value, dict) else list(value)
        choice = rng.randrange(8)
        if choice == 0:
            del copied[key]
        elif choice == 1 and isinstance(copied, dict):
            copied[str(rng.choice(_VALUES))] = copied.pop(key)
        elif choice == 2 and isinstance(copied, list):
            copied = copied * rng.choice((2, 100))
        else:
            copied[key] = _change_value(rng, copied[key])
        return copied
    if rng.randrange(12) == 0:
        nested: Any = value
        for _ in range(rng.choice((1, 50))):
            nested = [nested]
        return nested
    return rng.choice(_VALUES)
