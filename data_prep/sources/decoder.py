"""Decodes PNG and JPEG files to pixels; for large sets, in one process per core.

Threads would not help, because Pillow spends most of a small image's time in Python code. Each
process reads batches from a pipe and answers through it. The pipe closes when the parent
ends, even if it is killed, so no decoder outlives a killed run.
"""

import io
import itertools
import multiprocessing
import os
import signal
import warnings
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Union

import numpy as np
from PIL import Image

from cifar10 import schema
from data_prep.errors import SourceError

# Modes with at most 8 bits per channel, which convert to RGB without loss of range.
_MODES = ("RGB", "RGBA", "L", "LA", "P", "PA", "1", "CMYK", "YCbCr")
_FILES_AT_ONCE = 256
# Batches to decode before processes start, which takes as long as decoding some 2,000 images.
_WORTH_PROCESSES = 8

_Batch = list[tuple[str, bytes]]
_Answer = Union[bytes, SourceError]


def decode_all(files: Iterator[tuple[str, bytes]]) -> Iterator[bytes]:
    """Decodes (name, content) pairs, in order, to 3,072 bytes each in CHW order.

    Raises:
      SourceError: as for `decode`, for the first bad file in the order of `files`.
    """
    batches = _batches(files)
    for batch in itertools.islice(batches, _WORTH_PROCESSES):
        yield from _images(decode_batch(batch))
    first = next(batches, None)
    if first is not None:
        yield from _decode_in_processes(first, batches)


def _decode_in_processes(first: _Batch, batches: Iterator[_Batch]) -> Iterator[bytes]:
    # Spawned, not forked: a fork would inherit the other pipes and keep them open.
    context = multiprocessing.get_context("spawn")
    idle: list[Connection] = []
    for _ in range(len(os.sched_getaffinity(0))):
        ours, theirs = context.Pipe()
        context.Process(target=_serve, args=(theirs,), daemon=True).start()
        theirs.close()
        idle.append(ours)
    connections = tuple(idle)
    busy: deque[Connection] = deque()
    try:
        for batch in itertools.chain([first], batches):
            if not idle:
                # A decoder is sent nothing before its answer is read: neither side can block
                # on a full pipe while the other one does.
                yield from _images(busy[0].recv())
                idle.append(busy.popleft())
            busy.append(idle.pop())
            busy[-1].send(batch)
        for connection in busy:
            yield from _images(connection.recv())
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        raise SourceError("a decoder process died, perhaps because memory ran out") from error
    finally:
        for connection in connections:
            connection.close()


def _batches(files: Iterator[tuple[str, bytes]]) -> Iterator[_Batch]:
    while batch := list(itertools.islice(files, _FILES_AT_ONCE)):
        yield batch


def _images(answer: _Answer) -> Iterator[bytes]:
    if isinstance(answer, SourceError):
        raise answer
    for start in range(0, len(answer), schema.IMAGE_BYTES):
        yield answer[start : start + schema.IMAGE_BYTES]


def _serve(connection: Connection) -> None:
    """Decodes batches in a child process until the parent closes the pipe or ends."""
    # Ctrl-C reaches the whole process group; the parent handles it and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        while True:
            connection.send(decode_batch(connection.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def decode_batch(batch: _Batch) -> _Answer:
    """Decodes a batch; returns the images' bytes, concatenated, or the error of the first bad file.

    Args:
      batch: (name, content) of each file.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Pillow warns about unusual files: refuse them.
        try:
            return b"".join(decode(data, name) for name, data in batch)
        except SourceError as error:
            return error


def decode(data: bytes, name: str) -> bytes:
    """Decodes a PNG or JPEG to 3,072 bytes in CHW order; converts grey, palette and alpha to RGB.

    Raises:
      SourceError: the file is not an image, is damaged, or has another size or depth.
    """
    try:
        # Only the header is read here; the pixels are decoded after the size has been checked.
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
            _check_header(image, name)
            rgb = image if image.mode == "RGB" else image.convert("RGB")
            return np.asarray(rgb).transpose(2, 0, 1).tobytes()
    except SourceError:
        raise
    except Exception as error:  # Pillow's decoders raise many types on damaged files.
        reason = str(error).split("<")[0].strip() or type(error).__name__
        raise SourceError(f"{name}: not a sound PNG or JPEG image: {reason}") from error


def _check_header(image: Image.Image, name: str) -> None:
    if image.size != (schema.WIDTH, schema.HEIGHT):
        width, height = image.size
        raise SourceError(
            f"{name}: images must be {schema.WIDTH}x{schema.HEIGHT} pixels, "
            f"this is {width}x{height}"
        )
    if image.mode not in _MODES:
        raise SourceError(
            f"{name}: images must have 8 bits per channel, this has mode {image.mode}"
        )
