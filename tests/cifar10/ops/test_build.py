"""The compiled library: when it can be had, how it is compiled, and what is said if it is not."""

import functools
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from cifar10 import kernels
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.kernels import build
from cifar10.step.devices import plan_devices
from tests import failing_disk

ALL_FLAGS = {"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
BUILD = "python -m cifar10.kernels.build"


@pytest.fixture
def elsewhere(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The library's path, where nothing is yet, on a machine that can have it."""
    path = tmp_path / "built" / "kernels.so"
    monkeypatch.setattr(kernels, "why_impossible", lambda flags: None)
    monkeypatch.setattr(kernels, "path", lambda: path)
    monkeypatch.setattr(kernels, "load", functools.cache(kernels.load.__wrapped__))
    return path


@pytest.fixture
def compiler(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a compiler whose output is a word, which CXX names."""
    path = tmp_path / "fake"
    path.write_text('#!/bin/sh\nfor output; do :; done\necho compiled > "$output"\n')
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return str(path)


_LIMITS = """
import os, sys
from cifar10 import kernels
kernels.load()
for variable, value in eval(sys.argv[1]):
    if os.fork():
        os.wait()
    else:  # The library looks once.
        os.environ[variable] = value
        print(kernels.instructions(), flush=True)
        os._exit(0)
"""


def test_variables_limit_the_instructions(compiled_kernels, root):
    most = {
        ("CIFAR10_KERNELS_ISA", ""): "amx",
        ("CIFAR10_KERNELS_ISA", "avx2"): "avx2",
        ("CIFAR10_KERNELS_ISA", "avx512"): "avx512",
        ("CIFAR10_KERNELS_ISA", "avx512_bf16"): "avx512_bf16",
        ("ONEDNN_MAX_CPU_ISA", "AVX2"): "avx2",
        ("DNNL_MAX_CPU_ISA", "SSE41"): "avx2",
        ("ONEDNN_MAX_CPU_ISA", "avx512_core_vnni"): "avx512",
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"): "avx512_bf16",
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_AMX"): "amx",
    }
    names = {name for name, _ in most} | {"ONEDNN_MAX_CPU_ISA"}
    kept = {name: value for name, value in os.environ.items() if name not in names}
    words = [sys.executable, "-c", _LIMITS, repr([*most])]
    found = subprocess.run(
        words, env=kept, cwd=root, check=True, capture_output=True, text=True
    ).stdout.split()
    machines = kernels.LIMITS.index(found[0])  # what this machine has
    expected = [min(machines, kernels.LIMITS.index(limit)) for limit in most.values()]
    assert [kernels.LIMITS.index(limit) for limit in found] == expected


def test_another_limit_is_refused_in_one_line(monkeypatch, capsys):
    monkeypatch.setenv("CIFAR10_KERNELS_ISA", "avx3")
    line = "CIFAR10_KERNELS_ISA must be one of none, avx2, avx512, avx512_bf16, amx, got 'avx3'"
    with pytest.raises(ConfigError, match=line):
        plan_devices(TrainConfig(kernels="tensorflow"))
    assert build.main([]) == 2
    assert capsys.readouterr().err == f"error: {line}\n"


@pytest.mark.parametrize(
    ("limit", "platform", "machine", "flags", "reason"),
    [
        ("", "linux", "x86_64", ALL_FLAGS, None),
        ("none", "linux", "x86_64", ALL_FLAGS, "CIFAR10_KERNELS_ISA is none"),
        ("", "linux", "x86_64", ALL_FLAGS - {"fma", "avx2"}, "this CPU has no avx2, fma"),
        (
            *("", "darwin", "arm64", set()),
            "they are for Linux on x86-64, and this is darwin on arm64",
        ),
    ],
)
def test_a_machine_that_cannot_use_them_does_not_compile_them(
    monkeypatch, capsys, limit, platform, machine, flags, reason
):
    monkeypatch.setenv("CIFAR10_KERNELS_ISA", limit)
    monkeypatch.setattr(kernels.sys, "platform", platform)
    monkeypatch.setattr(kernels.platform, "machine", lambda: machine)
    monkeypatch.setattr(build, "cpu_flags", lambda: flags)
    assert kernels.why_impossible(flags) == reason
    if reason:
        assert build.main(["--anew"]) == 2
        assert f"are not available: {reason}\n" in capsys.readouterr().err


def test_what_is_not_compiled_says_how(elsewhere):
    assert kernels.why_not(ALL_FLAGS) == f"they are not compiled ({BUILD})"


def test_what_is_no_library_is_left_out_and_the_way_out_named(elsewhere):
    elsewhere.parent.mkdir()
    elsewhere.write_text("no library, but a text")
    reason = kernels.why_not(ALL_FLAGS)
    assert reason.startswith(f"{elsewhere} cannot be loaded: {elsewhere}: ")
    assert reason.endswith(f" ({BUILD} --anew)")


def test_a_new_library_reaches_the_disk_before_its_name_does(elsewhere, compiler):
    with failing_disk.every_rename_is_synced() as renamed:
        assert build.main([]) == 0
    assert renamed == [str(elsewhere)]


def test_other_sources_make_another_library(tmp_path, monkeypatch):
    for source in kernels.SOURCE_DIR.glob("*.*"):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    before = kernels.path().name
    monkeypatch.setattr(kernels, "SOURCE_DIR", tmp_path)
    assert kernels.path() == tmp_path / "built" / before
    (tmp_path / "conv_op.cc").write_text("// changed")
    assert kernels.path().name != before


def test_tensorflow_may_be_the_package_without_gpus(root, python_with_tensorflow_cpu):
    code = "from cifar10 import kernels; print(kernels.path())"
    words = [python_with_tensorflow_cpu, "-c", code]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == f"{kernels.path()}\n"


@pytest.mark.parametrize(
    ("chosen", "code", "reason"),
    [
        (None, 2, "there is no C++ compiler on PATH. On Debian: apt-get install g++."),
        ("no-such-compiler", 2, "CXX is no-such-compiler, which is not on PATH"),
        (" ", 2, "CXX is  , which is not on PATH"),
        ("env false", 1, "env false failed.\n"),
        ("BROKEN", 1, "conv_op.cc:1: error: of course"),
    ],
)
def test_without_a_compiler_that_works_nothing_is_left(
    elsewhere, tmp_path, monkeypatch, capsys, chosen, code, reason
):
    broken = tmp_path / "BROKEN"
    broken.write_text("#!/bin/sh\necho 'conv_op.cc:1: error: of course' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.path.dirname(str(shutil.which('env')))}")
    monkeypatch.setattr(build, "_COMPILERS", ("none",))
    if chosen is None:
        monkeypatch.delenv("CXX", raising=False)
    else:
        monkeypatch.setenv("CXX", chosen)
    assert build.main([]) == code
    errors = capsys.readouterr().err
    assert reason in errors
    assert "Training does without them, and takes longer." in errors
    assert not elsewhere.parent.exists() or list(elsewhere.parent.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(elsewhere, monkeypatch, capsys):
    elsewhere.parent.write_bytes(b"")
    monkeypatch.setenv("CXX", "true")
    assert build.main([]) == 1
    assert capsys.readouterr().err.startswith(
        f"Our own convolutions are not available: [Errno 17] File exists: '{elsewhere.parent}'; "
        f"when that is mended, run {BUILD} again\n"
    )


def test_what_is_there_is_not_compiled_again_unless_asked(elsewhere, monkeypatch):
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(b"a library")
    assert build.main([]) == 0
    monkeypatch.setenv("CXX", "false")
    assert build.main(["--anew"]) == 1
    assert elsewhere.read_bytes() == b"a library"
