"""Compiles the convolutions and activations for CPUs.

    python -m cifar10.kernels.build

The library contains code for AVX2, AVX-512, AVX512-BF16 and AMX and chooses when it runs, so that
all x86-64 machines that share this folder can use it. The file is replaced atomically, so several
processes may build at the same time. CXX names a compiler, also with arguments (`ccache g++`); the
default is the first of c++, g++ and clang++ on PATH. CIFAR10_KERNELS_ISA limits what runs use of
the library; with `none`, nothing is compiled.
"""

import argparse
import functools
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Optional

from cifar10 import kernels
from cifar10.errors import ConfigError
from cifar10.host.cpu import cpu_flags

_COMPILERS = ("c++", "g++", "clang++")
_OPS = ("conv_op.cc", "gelu_op.cc", "norm_op.cc")
# Compiled once for each set of instructions, with the macro INSTRUCTIONS.
_FUNCTIONS = ("winograd.cc", "small_images.cc", "gelu_op.cc", "norm_op.cc")
_AVX512 = "-march=x86-64-v4"
# Values of the macro INSTRUCTIONS, the flags for these instructions, and the functions that use
# them. The value with the fewest instructions comes first, since the linker keeps the first copy of
# each function of the standard library that several object files contain.
_INSTRUCTIONS = (
    ("avx2", ("-march=x86-64-v3",), _FUNCTIONS),
    ("avx512", (_AVX512,), _FUNCTIONS),
    ("avx512_bf16", (_AVX512, "-mavx512bf16"), ("winograd.cc",)),
    ("amx", (_AVX512, "-mavx512bf16", "-mamx-tile", "-mamx-bf16"), ("direct.cc",)),
)
# GCC 12 takes what its own header of vector instructions leaves open for an oversight.
_FLAGS = ("-std=c++17", "-fPIC", "-O3", "-Wall", "-Wno-maybe-uninitialized")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Builds the library and returns the exit code.

    0: the library is there; 1: compiling failed; 2: this machine cannot compile or run it.
    """
    parser = argparse.ArgumentParser(
        prog=kernels.BUILD_COMMAND,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--anew", action="store_true", help="even if the library is there")
    anew = parser.parse_args(argv).anew
    try:
        kernels.limit()
        return 0 if not anew and kernels.path().exists() else _compile()
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        _complain(f"{error}; when that is mended, run {kernels.BUILD_COMMAND} again")
        return 1


def _compile() -> int:
    """Compiles the library if that is possible and returns the exit code of `main`."""
    impossible = kernels.why_impossible(cpu_flags())
    compiler = _compiler()
    if compiler is None or impossible:
        chosen = os.environ.get("CXX")
        missing = f"CXX is {chosen}, which is not" if chosen else "there is no C++ compiler"
        way_out = "on PATH. On Debian: apt-get install g++. Elsewhere, name one: CXX=/path/to/g++"
        _complain(impossible or f"{missing} {way_out}")
        return 2
    print("Compiling convolutions for CPUs: about 20 seconds, once.", flush=True)
    try:
        _build(compiler, kernels.path())
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip() or f"exit code {error.returncode}"
        _complain(f"{shlex.join(compiler)} failed.\n{said}")
        return 1
    return 0


def _complain(reason: str) -> None:
    print(f"Our own convolutions are not available: {reason}", file=sys.stderr)
    print("Training does without them, and takes longer.", file=sys.stderr)


def _compiler() -> Optional[list[str]]:
    """Returns the words that a compiler's command begins with; None: there is no compiler."""
    chosen = os.environ.get("CXX")
    # As for make, CXX may have several words, such as `ccache g++`.
    commands = [chosen.split()] if chosen else [[name] for name in _COMPILERS]
    for name, *arguments in filter(None, commands):
        path = shutil.which(name)
        if path:
            return [path, *arguments]
    return None


def _build(compiler: Sequence[str], path: pathlib.Path) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # Only fatal errors, as in training.
    import tensorflow as tf2  # Imported here because it takes seconds to load.

    from cifar10.host import files

    run = functools.partial(subprocess.run, check=True, stderr=subprocess.PIPE, text=True)
    path.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        headers = [f"-I{kernels.SOURCE_DIR}", *tf2.sysconfig.get_compile_flags()]
        objects: list[str] = []
        for source, flags in _sources():
            objects.append(os.path.join(folder, f"{len(objects)}.o"))
            run([*compiler, *headers, *flags, *_FLAGS, "-c", source, "-o", objects[-1]])
        linked = os.path.join(folder, path.name)
        run([*compiler, "-shared", *objects, *tf2.sysconfig.get_link_flags(), "-o", linked])
        files.sync(linked)
        os.replace(linked, path)
        files.sync(str(path.parent))


def _sources() -> Iterator[tuple[pathlib.Path, Sequence[str]]]:
    """Yields each source file to compile, with the flags that it needs."""
    for name in _OPS:
        yield kernels.SOURCE_DIR / name, ()
    for instructions, flags, names in _INSTRUCTIONS:
        for name in names:
            yield kernels.SOURCE_DIR / name, (*flags, f"-DINSTRUCTIONS={instructions}")


if __name__ == "__main__":
    sys.exit(main())
