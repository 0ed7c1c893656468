"""Runs mutants in child processes, several at a time, each within a time limit."""

import contextlib
import dataclasses
import functools
import gc
import importlib
import json
import os
import signal
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

from tests.mutants import child
from tests.mutants.mutations import Mutant
from tests.mutants.plugins import LikelyFirst, Lines, Tracer

# A mutant hangs if it takes longer than _LIMIT_FACTOR times the tests' time without it plus a
# constant. CPU time decides where it can, since other load does not change it.
_LIMIT_FACTOR, _LIMIT_CPU_SECS, _LIMIT_SECS = 5.0, 10.0, 60.0
_POLL_SECS = 0.02


@dataclasses.dataclass(frozen=True)
class Limits:
    """Time limits of a child process, in seconds of wall time and of CPU time."""

    secs: float
    cpu_secs: float


_FIRST = Limits(900.0, 600.0)  # for the tests without a mutant


@dataclasses.dataclass(frozen=True)
class Baseline:
    """Measurements of the tests without a mutant.

    Attributes:
      lines: test name -> numbers of the module's lines that the test runs.
      secs: test name -> seconds that the test takes.
      limits: time limits after which a mutant counts as hung.
    """

    lines: Lines
    secs: dict[str, float]
    limits: Limits

    def ranks(self, mutant: Mutant) -> dict[str, float]:
        """Returns the tests' ranks for a mutant: tests that run its lines come before others."""
        lines = set(range(mutant.line, mutant.last_line + 1))
        late = 1e6
        return {
            test: secs + (0 if self.lines[test] & lines else late)
            for test, secs in self.secs.items()
        }


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of running a mutant.

    Attributes:
      mutant: the mutant.
      status: `killed`, `survived` or `hung`, which counts as killed.
      test: name of the test that failed; "" if none did.
      reason: why the mutant counts as killed or hung.
      secs: CPU seconds that the run took.
    """

    mutant: Mutant
    status: str
    test: str
    reason: str
    secs: float


class RunError(Exception):
    """The tests cannot judge mutants: they fail without one, or no test ran."""


def preload(names: Iterable[str]) -> None:
    """Imports modules in the parent, so that children need not load them again.

    Modules that cannot be imported by name are skipped: others make them while loading.

    Args:
      names: names of modules outside this repository.
    """
    for name in names:
        if name not in sys.modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()  # Keeps a child's collector from touching, and so copying, these pages.


@dataclasses.dataclass
class _Running:
    item: Any
    folder: tempfile.TemporaryDirectory[str]
    began: float


@dataclasses.dataclass(frozen=True)
class _Ended:
    item: Any
    result: Optional[dict[str, Any]]  # None: the child was killed or wrote no result.
    was_late: bool
    signum: int  # signal that ended the child; 0: none
    secs: float
    cpu_secs: float
    output: str


def measure(root: Path, module: str, tests: Sequence[str]) -> Baseline:
    """Runs a module's tests twice without a mutant: traced, and then as each mutant is run.

    Raises:
      RunError: the tests fail.
    """
    source = (root / module).read_text(encoding="utf-8")

    def traced(folder: Path) -> dict[str, Any]:
        child.install(root, module, source)
        tracer = Tracer(root / module)
        result = child.run_tests(tests, folder, [tracer])
        lines = {test: sorted(found) for test, found in tracer.lines.items()}
        return {**result, "lines": lines, "secs": tracer.secs, "loaded": _loaded()}

    def plain(folder: Path) -> dict[str, Any]:
        child.install(root, module, source)
        return child.run_tests(tests, folder, [])

    found = _passed(module, traced)
    assert found.result is not None
    preload(found.result["loaded"])
    control = _passed(module, plain)
    return Baseline(
        lines={test: set(lines) for test, lines in found.result["lines"].items()},
        secs=found.result["secs"],
        limits=Limits(
            _LIMIT_FACTOR * control.secs + _LIMIT_SECS,
            _LIMIT_FACTOR * control.cpu_secs + _LIMIT_CPU_SECS,
        ),
    )


def _passed(module: str, work: Callable[[Path], dict[str, Any]]) -> _Ended:
    (ended,) = _run_all([None], lambda _: work, 1, _FIRST)
    if ended.result is None or ended.result["code"] != 0:
        raise RunError(f"{module}: its tests fail without a mutant:\n{ended.output[-3000:]}")
    return ended


def _loaded() -> list[str]:
    """Returns the loaded modules of Python and of packages, in the order of loading."""
    places = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platlib", "purelib"))
    return [
        name
        for name, module in sys.modules.items()
        if (getattr(module, "__file__", None) or "").startswith(places)
    ]


def run(
    root: Path, tests: Sequence[str], baseline: Baseline, mutants: Sequence[Mutant], processes: int
) -> Iterator[Result]:
    """Runs mutants of one module, and yields each result when it is there.

    Raises:
      RunError: no test ran.
    """

    def work_for(mutant: Mutant) -> Callable[[Path], dict[str, Any]]:
        def work(folder: Path) -> dict[str, Any]:
            source = (root / mutant.module).read_text(encoding="utf-8")
            child.install(root, mutant.module, mutant.applied_to(source))
            return child.run_tests(tests, folder, [LikelyFirst(baseline.ranks(mutant))])

        return work

    for ended in _run_all(mutants, work_for, processes, baseline.limits):
        yield _judged(ended)


def _judged(ended: _Ended) -> Result:
    result, status, test, reason = ended.result, "killed", "", ""
    if ended.was_late:
        status, reason = "hung", f"not over after {ended.cpu_secs:.0f} s"
    elif ended.signum:
        reason = f"ended by signal {ended.signum}"
    elif result is not None and result["code"] == 0:
        status = "survived"
    elif result is not None and result["test"]:
        test, reason = result["test"], result["reason"]
    else:  # Another failure, which must not count as a test that noticed the mutant.
        raise RunError(f"no test ran: {ended.item.change}\n{ended.output[-3000:]}")
    return Result(ended.item, status, test, reason, ended.cpu_secs)


def _run_all(
    items: Sequence[Any],
    work_for: Callable[[Any], Callable[[Path], dict[str, Any]]],
    processes: int,
    limits: Limits,
) -> Iterator[_Ended]:
    waiting = list(reversed(items))
    running: dict[int, _Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                item = waiting.pop()
                folder = tempfile.TemporaryDirectory(prefix="mutant-")
                path, work = Path(folder.name), work_for(item)
                pid = child.fork(path, functools.partial(work, path), limits.cpu_secs)
                running[pid] = _Running(item, folder, time.monotonic())
            for pid, one in list(running.items()):
                was_late = time.monotonic() > one.began + limits.secs
                if was_late or _is_over(pid):
                    del running[pid]
                    yield _end(pid, one, was_late)
            time.sleep(_POLL_SECS)
    finally:
        for pid, one in running.items():
            _end(pid, one, True)


def _is_over(pid: int) -> bool:
    """Returns whether a child has ended, without reaping it; `_end` does that."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(pid: int, one: _Running, was_late: bool) -> _Ended:
    """Kills a child and its process group, reaps the child, and reads its result and output."""
    for kill in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError):  # The child has no group of its own yet.
            kill(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    signum = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    was_late |= signum == signal.SIGXCPU
    file, output = (Path(one.folder.name) / name for name in ("result.json", "output"))
    result = None
    if file.exists() and not was_late:
        result = json.loads(file.read_text(encoding="utf-8"))
    text = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
    one.folder.cleanup()
    secs = time.monotonic() - one.began
    return _Ended(one.item, result, was_late, signum, secs, used.ru_utime + used.ru_stime, text)
