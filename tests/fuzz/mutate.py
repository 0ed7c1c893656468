"""Makes hostile inputs from valid ones; all choices come from a `random.Random`."""

import json
import random
from typing import Any

LONGEST = 1 << 20  # bytes of an input

_MARKS = (
    *(b"\0", b"\n", b"\r\n", b"\xff" * 8, b"..", b"/", b"%s%n", b"\x1b[2J", b"\xc3\x28", b"="),
    *(size.to_bytes(8, "little") for size in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40)),
    *(size.to_bytes(4, "big") for size in (0, 0x7FFFFFFF, 0xFFFFFFFF)),
)
_WORDS = (
    "", " ", "\0", "\n", "-1", "0", "nan", "inf", "1e400", "1e-400", "0x10", "1_000", "9" * 400,
    "9" * 5000, "true", "null", "~", "*a", "&a", "!!python/object:os", "<<", "../..", "/dev/null",
    "\x1b]0;x\x07", "\u202e", "\u2028", "\ud800", "\U0001f600", "٣", "{", "}", "[", "[" * 3000,
    "{\"a\":" * 3000, "- " * 3000, "=", ":", ",", "|", "@", "%", "a" * 70000, "None", "''", "\"",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**64, 10**400, 0.5, float("nan"), float("inf"), "", "x", "0",
    "a\nb", "\0", "\x1b[2J", "\ud800", "../../etc", "9" * 5000, [], {}, [[]], {"": None}, [None],
    "a" * 70000,
)  # fmt: skip


def of_bytes(rng: random.Random, example: bytes) -> bytes:
    """Changes bytes: flips, cuts, repeats, and writes extreme lengths and numbers."""
    data = bytearray(example)
    for _ in range(1 + rng.randrange(4)):
        position = rng.randrange(len(data) + 1)
        end = min(len(data), position + 1 + rng.randrange(1 << rng.randrange(12)))
        choice = rng.randrange(6)
        if choice == 0 and position < len(data):
            data[position] ^= 1 << rng.randrange(8)
        elif choice == 1:
            del data[position:end]
        elif choice == 2:
            data[position:position] = bytes(data[position:end]) * rng.choice((1, 2, 100))
        elif choice == 3:
            del data[position:]
        else:
            mark = rng.choice(_MARKS)
            data[position : position + len(mark) * (choice == 4)] = mark
    return bytes(data[:LONGEST])


def of_text(rng: random.Random, example: bytes) -> bytes:
    """Changes UTF-8 text, such as the words of a command line, which NUL bytes separate."""
    text = example.decode()
    for _ in range(1 + rng.randrange(4)):
        position = rng.randrange(len(text) + 1)
        end = min(len(text), position + 1 + rng.randrange(1 << rng.randrange(8)))
        put = rng.choice((*_WORDS, "", text[position:end] * 3))
        text = text[:position] + put + text[rng.choice((position, end)) :]
    data = text.encode("utf-8", "surrogatepass")
    return of_bytes(rng, data) if rng.randrange(4) == 0 else data[:LONGEST]


def of_json(rng: random.Random, example: bytes) -> bytes:
    """Changes values, keys and the nesting of JSON, and sometimes its text."""
    value = json.loads(example)
    for _ in range(1 + rng.randrange(3)):
        value = _change(rng, value)
    data = json.dumps(value).encode()
    return of_text(rng, data) if rng.randrange(4) == 0 else data[:LONGEST]


def _change(rng: random.Random, value: Any) -> Any:
    """Returns JSON in which one value or key, at a random depth, is another one."""
    if not isinstance(value, (dict, list)) or not value or not rng.randrange(5):
        return rng.choice((*_VALUES, [[value]]))
    copied: Any = dict(value) if isinstance(value, dict) else list(value)
    key = rng.choice(list(value) if isinstance(value, dict) else list(range(len(value))))
    choice = rng.randrange(8)
    if choice == 0:
        del copied[key]
    elif choice == 1 and isinstance(copied, dict):
        copied[str(rng.choice(_VALUES))] = copied.pop(key)
    else:
        copied[key] = _change(rng, copied[key])
    return copied
