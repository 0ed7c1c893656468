"""The compiled library: when it can be had, how it is compiled, and what is said if it is not."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.ops.kernels import build, library
from cifar10.step.devices import plan_devices
from tests import failing_disk
from tests.cifar10.forks import Forks

ALL_FLAGS = {"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
COMPILED = library.path()
BUILD = "python -m cifar10.ops.kernels.build"


@pytest.fixture
def elsewhere(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The library's path, where nothing is yet, on a machine that can have it."""
    path = tmp_path / "built" / "kernels.so"
    monkeypatch.setattr(library, "why_impossible", lambda flags: None)
    monkeypatch.setattr(library, "path", lambda: path)
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
from cifar10.ops.kernels import library
library.load()
for variable, value in eval(sys.argv[1]):
    if os.fork():
        os.wait()
    else:  # The library looks once.
        os.environ[variable] = value
        print(library.instructions(), flush=True)
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
    machines = library.LIMITS.index(found[0])  # what this machine has
    expected = [min(machines, library.LIMITS.index(one)) for one in most.values()]
    assert [library.LIMITS.index(one) for one in found] == expected


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
    monkeypatch.setattr(library.sys, "platform", platform)
    monkeypatch.setattr(library.platform, "machine", lambda: machine)
    monkeypatch.setattr(build, "cpu_flags", lambda: flags)
    assert library.why_impossible(flags) == reason
    if reason:
        assert build.main(["--anew"]) == 2
        assert f"cannot be had: {reason}\n" in capsys.readouterr().err


_WHY_NOT = """
import os, pathlib, sys
from cifar10.ops.kernels import build, library
sys.stdout.reconfigure(errors="backslashreplace")
library.why_impossible = lambda flags: None
library.path = lambda: pathlib.Path(sys.argv[1])
os.seteuid(int(sys.argv[2]))
print(library.why_not(frozenset()))
"""


def why_not(forks: Forks, path: pathlib.Path, user: int = os.geteuid()) -> str:
    """What `why_not` says of a library at a path to a process of its own."""
    done = forks.run_code(_WHY_NOT, path, user)
    assert done.returncode == 0, done
    return done.stdout.strip()


def test_what_is_not_compiled_says_how(elsewhere):
    assert library.why_not(ALL_FLAGS) == f"they are not compiled ({BUILD})"


def test_a_whole_library_is_loaded_from_wherever_it_lies(compiled_kernels, forks, elsewhere):
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(COMPILED.read_bytes())
    assert why_not(forks, elsewhere) == "None"
    folder = elsewhere.parent / os.fsdecode(b"b\xe4ume")
    folder.mkdir()
    named = why_not(forks, elsewhere.rename(folder / "kernels.so"))
    assert "ume/kernels.so cannot be loaded: its path is not UTF-8 (" in named


# No library, nothing, a part of the header, and parts of what the header promises.
@pytest.mark.parametrize("size", [None, 0, 50, 5000, -1])
def test_a_library_that_was_cut_off_is_refused_and_compiled_anew(
    compiled_kernels, forks, elsewhere, monkeypatch, size
):
    elsewhere.parent.mkdir()
    content = COMPILED.read_bytes()[:size] if size is not None else b"no library, but a text"
    elsewhere.write_bytes(content)
    assert why_not(forks, elsewhere) == (
        f"{elsewhere} cannot be loaded: the file is cut off or is no library ({BUILD} --anew)"
    )
    monkeypatch.setenv("CXX", "false")
    assert build.main([]) == 1  # It compiles.


@pytest.mark.parametrize(("of_folder", "of_file"), [(0o700, 0o755), (0o755, 0o700)])
def test_a_library_that_may_not_be_read_is_left_out_and_the_way_out_named(
    forks, of_folder, of_file
):
    if os.geteuid() != 0:
        pytest.skip("needs root, to become a user who may not read the file")
    with tempfile.TemporaryDirectory() as folder:  # Others may not enter pytest's folders.
        os.chmod(folder, 0o755)
        path = pathlib.Path(folder) / "built" / "kernels.so"
        path.parent.mkdir()
        path.write_bytes(pathlib.Path(sys.executable).read_bytes())
        path.chmod(of_file)
        path.parent.chmod(of_folder)
        found = why_not(forks, path, user=65534)
    way_out = f"who owns {path.parent} can let others read it (chmod -R a+rX {path.parent})"
    assert found == f"{path} cannot be loaded: Permission denied; {way_out}"


def test_a_new_library_reaches_the_disk_before_its_name_does(elsewhere, compiler):
    with failing_disk.every_rename_is_synced() as renamed:
        assert build.main([]) == 0
    assert renamed == [str(elsewhere)]


def test_other_sources_make_another_library(tmp_path, monkeypatch):
    for source in library.SOURCE_DIR.glob("*.*"):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    before = library.path().name
    monkeypatch.setattr(library, "SOURCE_DIR", tmp_path)
    assert library.path() == tmp_path / "built" / before
    (tmp_path / "conv_op.cc").write_text("// changed")
    assert library.path().name != before


def test_tensorflow_may_be_the_package_without_gpus(root, python_with_tensorflow_cpu):
    code = "from cifar10.ops.kernels import library; print(library.path())"
    words = [python_with_tensorflow_cpu, "-c", code]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == f"{library.path()}\n"


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


def test_a_compiler_may_have_arguments(elsewhere, compiler, monkeypatch):
    monkeypatch.setenv("CXX", f"env -u NOTHING {compiler}")
    assert build.main([]) == 0
    assert elsewhere.read_text() == "compiled\n"


def test_a_folder_that_cannot_be_written_is_named(elsewhere, monkeypatch, capsys):
    elsewhere.parent.write_bytes(b"")
    monkeypatch.setenv("CXX", "true")
    assert build.main([]) == 1
    assert capsys.readouterr().err.startswith(
        f"Our own convolutions cannot be had: [Errno 17] File exists: '{elsewhere.parent}'; when "
        f"that is mended, run {BUILD} again\n"
    )


def test_a_build_removes_what_is_older_than_a_day(elsewhere, compiler):
    folder = elsewhere.parent
    for name in ("kernels-1.so", "kernels-2.so", "part-1/0.o", "part-2/0.o", "notes.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    for name in ("kernels-1.so", "part-1", "notes.txt"):
        os.utime(folder / name, (0, 0))
    assert build.main([]) == 0
    kept = ["kernels-2.so", "kernels.so", "notes.txt", "part-2"]
    assert sorted(path.name for path in folder.iterdir()) == kept


def test_what_is_there_is_not_compiled_again_unless_asked(elsewhere, monkeypatch):
    built_before = pathlib.Path(sys.executable).read_bytes()  # A whole ELF file.
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(built_before)
    assert build.main([]) == 0
    monkeypatch.setenv("CXX", "false")
    assert build.main(["--anew"]) == 1
    assert elsewhere.read_bytes() == built_before
