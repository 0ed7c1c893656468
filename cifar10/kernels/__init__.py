"""Custom ops for CPUs in C++: convolutions, activations, normalisation. See docs/kernels.md.

This module is the package's one entry: the compiled library's path, whether this machine can use
it, and its TensorFlow ops. `python -m cifar10.kernels.build` compiles the library on the machine
that trains.
"""

import ctypes
import functools
import hashlib
import os
import pathlib
import platform
import sys
from collections.abc import Set
from importlib import metadata
from typing import Any, Optional

from cifar10.errors import ConfigError

SOURCE_DIR = pathlib.Path(__file__).parent
# The values of norm.h and winograd.h: the number of channels must be a multiple of
# CHANNELS; an image's may be one of INPUTS unless the image is a single tile.
CHANNELS, INPUTS = 16, 8
BUILD_COMMAND = "python -m cifar10.kernels.build"
# The variable with the most instructions that the library may use, and its values: from `avx2` on,
# each has those before it.
LIMIT = "CIFAR10_KERNELS_ISA"
BF16_DOTS, MATRICES = "avx512_bf16", "amx"
LIMITS = ("none", "avx2", "avx512", BF16_DOTS, MATRICES)

# The features of the architecture that compilers call x86-64-v3, as /proc/cpuinfo names them.
_NEEDED = frozenset({"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})


def path() -> pathlib.Path:
    """Returns the path of the library of these sources and this TensorFlow; it may not exist."""
    try:
        version = metadata.version("tensorflow")
    except metadata.PackageNotFoundError:
        version = metadata.version("tensorflow-cpu")
    digest = hashlib.sha256(version.encode())
    for source in sorted([*SOURCE_DIR.glob("*.h"), *SOURCE_DIR.glob("*.cc")]):
        digest.update(source.read_bytes())
    digest.update((SOURCE_DIR / "build.py").read_bytes())
    return SOURCE_DIR / "built" / f"kernels-{digest.hexdigest()[:16]}.so"


def is_one_tile(height: int, width: int) -> bool:
    """Returns whether an image is a single tile, as small_images.h says."""
    longer = max(height, width)
    return longer <= 3 or 5 <= longer <= 7


def positions(height: int, width: int) -> int:
    """Returns how many positions an image's tiles cover, also beside it, as winograd.h says."""
    tiles = {tile: -(-height // tile) * -(-width // tile) for tile in (4, 5)}
    tile = min(tiles, key=lambda side: tiles[side] * (side + 2) ** 2)
    return tiles[tile] * tile**2


def limit() -> str:
    """Returns the value of LIMIT, one of LIMITS.

    Raises:
      ConfigError: it is another.
    """
    given = os.environ.get(LIMIT) or LIMITS[-1]
    if given not in LIMITS:
        raise ConfigError(f"{LIMIT} must be one of {', '.join(LIMITS)}, got {given!r}")
    return given


def why_impossible(cpu_flags: Set[str]) -> Optional[str]:
    """Says why this machine cannot or may not run the library; returns None if it may.

    Args:
      cpu_flags: the CPU's features as /proc/cpuinfo names them.

    Raises:
      ConfigError: as `limit`.
    """
    if limit() == "none":
        return f"{LIMIT} is none"
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"they are for Linux on x86-64, and this is {sys.platform} on {platform.machine()}"
    missing = sorted(_NEEDED - cpu_flags)
    return f"this CPU has no {', '.join(missing)}" if missing else None


def why_not(cpu_flags: Set[str]) -> Optional[str]:
    """Says why the library cannot be used now; returns None if it can, and has loaded it then.

    Args:
      cpu_flags: the CPU's features as /proc/cpuinfo names them.
    """
    reason = why_impossible(cpu_flags)
    if reason is None:
        try:
            if path().exists():
                load()
            else:
                reason = f"they are not compiled ({BUILD_COMMAND})"
        except OSError as error:
            reason = f"{path()} cannot be loaded: {error} ({BUILD_COMMAND} --anew)"
    return reason


@functools.cache
def load() -> Any:
    """Loads the library and returns the module of its ops, such as `cifar10_conv3x3`.

    Raises:
      OSError: there is no library at `path`, or it cannot be loaded.
    """
    # Imported here, because the build looks for the library without loading TensorFlow.
    import tensorflow.compat.v1 as tf

    try:
        return tf.load_op_library(str(path()))
    except tf.errors.OpError as error:
        raise OSError(error.message) from error
    except TypeError as error:  # TensorFlow refuses a path that is not UTF-8.
        raise OSError("its path is not UTF-8") from error


def instructions() -> str:
    """Returns the most instructions that the library uses in this process, one of LIMITS.

    From BF16_DOTS on, dot products of bfloat16s are used where an op asks for them; with MATRICES,
    other products of bfloat16s are those of matrices.

    Raises:
      OSError: there is no library at `path`, or it cannot be loaded.
    """
    return LIMITS[1 + ctypes.CDLL(str(path())).cifar10_instructions()]
