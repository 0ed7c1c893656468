"""Decodes image files to pixels; for large sets, in one process per core.

Threads would not help, because Pillow spends most of a small image's time in Python code. Each
process reads batches from a pipe and answers through it. The pipe closes when the parent
ends, even if it is killed, so no decoder outlives a killed run.
"""

import itertools
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Optional, Union

from cifar10 import image_file, schema
from data_prep.errors import SourceError

# A batch ends with either: files of 32x32 pixels take some 600 kB, photographs megabytes each.
_FILES_AT_ONCE = 256
_BYTES_AT_ONCE = 4 << 20
# Batches to decode before processes start, which takes as long as decoding some 2,000 images.
_WORTH_PROCESSES = 8
RESIZE_ADVICE = f"--resize {'|'.join(schema.RESIZES)} takes images of any size"

_Batch = list[tuple[str, bytes]]
_Answer = Union[bytes, SourceError, MemoryError]


def decode_all(files: Iterator[tuple[str, bytes]], resize: Optional[str] = None) -> Iterator[bytes]:
    """Decodes (name, content) pairs, in order, to 3,072 bytes each in CHW order.

    Args:
      files: the pairs.
      resize: how images of other sizes are brought to 32x32; None: they are refused.

    Raises:
      SourceError: as for `decode`, for the first bad file in the order of `files`.
    """
    batches = _batches(files)
    for batch in itertools.islice(batches, _WORTH_PROCESSES):
        yield from _images(decode_batch(batch, resize))
    first = next(batches, None)
    if first is not None:
        yield from _decode_in_processes(first, batches, resize)


def _decode_in_processes(
    first: _Batch, batches: Iterator[_Batch], resize: Optional[str]
) -> Iterator[bytes]:
    # Spawned, not forked: a fork would inherit the other pipes and keep them open.
    context = multiprocessing.get_context("spawn")
    idle: list[Connection] = []
    for _ in range(len(os.sched_getaffinity(0))):
        ours, theirs = context.Pipe()
        context.Process(target=_serve, args=(theirs, resize), daemon=True).start()
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
    batch: _Batch = []
    size = 0
    for name, data in files:
        batch.append((name, data))
        size += len(data)
        if len(batch) == _FILES_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _images(answer: _Answer) -> Iterator[bytes]:
    if isinstance(answer, (SourceError, MemoryError)):
        raise answer
    for start in range(0, len(answer), schema.IMAGE_BYTES):
        yield answer[start : start + schema.IMAGE_BYTES]


def _serve(connection: Connection, resize: Optional[str]) -> None:
    """Decodes batches in a child process until the parent closes the pipe or ends."""
    # Ctrl-C reaches the whole process group; the parent handles it and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        while True:
            connection.send(decode_batch(connection.recv(), resize))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def decode_batch(batch: _Batch, resize: Optional[str] = None) -> _Answer:
    """Decodes a batch; returns the images' bytes, concatenated, or the first error.

    Args:
      batch: (name, content) of each file.
      resize: how images of other sizes are brought to 32x32; None: they are refused.
    """
    try:
        return b"".join(decode(data, name, resize) for name, data in batch)
    except (SourceError, MemoryError) as error:
        return error


def decode(data: bytes, name: str, resize: Optional[str] = None) -> bytes:
    """Decodes an image file to 3,072 bytes in CHW order: see `cifar10.image_file`.

    Raises:
      SourceError: the file is not an image, is damaged, or has another size or depth.
    """
    try:
        pixels = image_file.decode(data, resize).pixels
    except image_file.ImageSizeError as error:
        raise SourceError(f"{name}: {error}; {RESIZE_ADVICE}") from error
    except image_file.ImageFileError as error:
        raise SourceError(f"{name}: {error}") from error
    return pixels.transpose(2, 0, 1).tobytes()
