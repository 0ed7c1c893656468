"""Gives one input to a parser, within limits of time and memory, and judges what happens."""

import contextlib
import io
import logging
import random
import signal
import tempfile
import traceback
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn, Optional

from tests.fuzz.parser import Parser


class TooSlow(BaseException):
    """The parser took more than its share of processor time."""


def make_input(parser: Parser, rng: random.Random) -> bytes:
    """Returns a changed example of a parser, in half of the cases with right checksums."""
    data = parser.form(rng, parser.examples())
    return parser.repair(data) if parser.repair is not None and rng.randrange(2) else data


def fault_of(parser: Parser, data: bytes, *, traced: bool = True) -> Optional[str]:
    """Gives an input to a parser; returns what is wrong with its answer, or None.

    Args:
      parser: the parser.
      data: the input.
      traced: whether to measure the memory, which makes Python slower.
    """
    _load(parser)
    if traced:
        tracemalloc.start()
    try:
        with _quiet(), _limited(parser.most_secs), tempfile.TemporaryDirectory() as folder:
            parser.call(data, Path(folder))
    except parser.errors as error:
        message = str(error)
        if not message or "\n" in message or "\r" in message:
            return f"the message of {type(error).__name__} is not one line: {message[:300]!r}"
    except TooSlow:
        return f"more than {parser.most_secs:g} s of processor time"
    except MemoryError:
        return "more memory than there is"
    except Exception:
        return traceback.format_exc(limit=-6)
    finally:
        peak = tracemalloc.get_traced_memory()[1] if traced else 0
        tracemalloc.stop()
    if peak > parser.most_bytes:
        return f"{peak >> 20} MiB of Python objects, more than {parser.most_bytes >> 20} MiB"
    return None


_LOADED: set[str] = set()


def _load(parser: Parser) -> None:
    """Reads a valid input once, so that what the parser imports and keeps is not measured."""
    if parser.name not in _LOADED:
        _LOADED.add(parser.name)
        with _quiet(), tempfile.TemporaryDirectory() as folder:
            parser.call(parser.examples()[0], Path(folder))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps output away, and makes errors of warnings."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("error")
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, logging.NOTSET)
        yield


@contextlib.contextmanager
def _limited(secs: float) -> Iterator[None]:
    """Raises TooSlow after so much processor time, which other programs do not lengthen."""

    def stop(_: int, __: Optional[FrameType]) -> NoReturn:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, secs)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
