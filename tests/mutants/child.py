"""Runs the tests of a module, with a mutant of it, in a forked child process.

The parent has imported TensorFlow and pytest, but no code of this repository that imports the
module. It has not run TensorFlow, whose threads would be missing in a child. So a child differs
from a new process only in that it saves the time for loading.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import math
import os
import resource
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Callable, Optional

import pytest

from tests.mutants.plugins import FirstFailure


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self._source, self.path, "exec", dont_inherit=True)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname != self._name:
            return None
        places = [str(self._path.parent)] if self._path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            fullname,
            self._path,
            loader=_Loader(fullname, str(self._path), self._source),
            submodule_search_locations=places,
        )


def install(root: Path, module: str, source: str) -> None:
    """Makes Python import a module from the given source.

    Args:
      root: the repository's root folder.
      module: path of the module's file from the root.
      source: the source code to use instead of the file's.

    Raises:
      RuntimeError: the module has been imported already.
    """
    parts = Path(module).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    if name in sys.modules:
        raise RuntimeError(f"{name} is imported already, so a mutant of it would not be used")
    sys.meta_path.insert(0, _Finder(name, root / module, source))


def run_tests(tests: Sequence[str], folder: Path, plugins: Sequence[object]) -> dict[str, Any]:
    """Runs tests up to the first failure.

    Returns:
      `code`: pytest's exit code; `test` and `reason` of the first failure, or empty.
    """
    failure = FirstFailure()
    options = ["-x", "-q", f"--basetemp={folder / 'tmp'}"]
    options += ["-p", "no:cacheprovider"]  # Many at once would write it.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # Plugins are loaded already.
    code = pytest.main([*options, *tests], plugins=[failure, *plugins])
    return {"code": int(code), "test": failure.test, "reason": failure.reason}


def fork(folder: Path, work: Callable[[], dict[str, Any]], cpu_secs: float) -> int:
    """Calls `work` in a forked child with a process group of its own.

    The child's output goes to `folder/output`, the result of `work` to `folder/result.json`.

    Args:
      folder: folder for the two files.
      work: function to call; its result must be serialisable as JSON.
      cpu_secs: CPU seconds after which the child is ended.

    Returns:
      The child's process id.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        # SIGXCPU, which ends the process, and SIGKILL if it does not.
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu_secs), math.ceil(cpu_secs) + 5))
        output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        result = work()
        (folder / "partial.json").write_text(json.dumps(result), encoding="utf-8")
        os.rename(folder / "partial.json", folder / "result.json")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: what the parent has opened and registered is the parent's.
        os._exit(code)
