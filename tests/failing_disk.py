"""Makes operations on the disk fail, fills it, and finds files that are renamed before a sync."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional
from unittest import mock


def _operations() -> list[tuple[Any, str]]:
    """Returns what may fail: where it is looked up, and its name; TensorFlow's if it is loaded."""
    found: list[tuple[Any, str]] = [(os, "fsync"), (os, "replace"), (os, "unlink")]
    gfile = _gfile()
    names = ("GFile", "copy", "makedirs", "remove", "rename") if gfile else ()
    return found + [(gfile, name) for name in names]


def _gfile() -> Any:
    tensorflow = sys.modules.get("tensorflow")
    return None if tensorflow is None else tensorflow.compat.v1.io.gfile


class DiskFull(OSError):
    """The error of the operation that fails."""


def failures_of(act: Callable[[], object]) -> Iterator[int]:
    """Calls `act` again and again; its first operation fails, then its second, ...

    Yields:
      The number of the operation that has failed, after each call that failed; it ends with the
      first call in which nothing fails.
    """
    for number in range(1, 1000):
        with _failing(number) as failed, contextlib.suppress(DiskFull):
            act()
        if not failed:
            return
        yield number
    raise AssertionError("1,000 operations on the disk, and no end")


@contextlib.contextmanager
def _failing(number: int) -> Iterator[list[int]]:
    """Makes the operation `number` fail; yields a list, which is empty if none failed."""
    failed: list[int] = []
    count = 0

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **settings: Any) -> Any:
            nonlocal count
            count += 1
            if count == number:
                failed.append(number)
                raise DiskFull(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **settings)

        return call

    with contextlib.ExitStack() as stack:
        for module, name in _operations():
            stack.enter_context(mock.patch.object(module, name, wrap(getattr(module, name))))
        yield failed


@contextlib.contextmanager
def every_rename_is_synced() -> Iterator[list[str]]:
    """Checks that what is renamed had reached the disk as it is; yields the new paths.

    A machine that loses power may keep a rename but not the content that was written before it.
    """
    synced: dict[str, bytes] = {}
    renamed: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        path = os.path.realpath(f"/proc/self/fd/{descriptor}")
        if os.path.isfile(path):
            synced[path] = Path(path).read_bytes()

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def rename(source: Any, target: Any, *arguments: Any, **settings: Any) -> Any:
            files = [Path(source)] if os.path.isfile(source) else Path(source).rglob("*")
            for path in files:
                if path.is_file():
                    assert synced.get(os.path.realpath(path)) == path.read_bytes(), path
            renamed.append(str(target))
            return real(source, target, *arguments, **settings)

        return rename

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(os, "fsync", note))
        renames = [(os, "replace"), *([(_gfile(), "rename")] if _gfile() else [])]
        for module, name in renames:
            stack.enter_context(mock.patch.object(module, name, wrap(getattr(module, name))))
        yield renamed


def flip_bit(path: Path, position: Optional[int] = None) -> None:
    """Changes a bit of a byte of a file; by default, of the one in its middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if position is None else position] ^= 1
    path.write_bytes(content)


def fill(folder: Path) -> None:
    """Leaves no room for content on the file system of a folder, in FOLDER/filler."""
    with contextlib.suppress(OSError), (folder / "filler").open("ab", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
