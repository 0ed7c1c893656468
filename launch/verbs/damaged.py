"""Cleans a run whose run.json is damaged, by what its other files and the rest of it say."""

import re
import shutil
import sys
import time

from launch.backends.registry import backend_named
from launch.cluster.host_list import is_this_machine
from launch.errors import HostError, LaunchError
from launch.record import events
from launch.record.run_folder import DamagedError, Record, RunFolder
from launch.screen.plain import plain
from launch.screen.row import saved_rows

_ALIVE_SECS = 60.0  # a launcher writes status.json each second, unless its disk is busy
_FOUND_BY_ID = ("local", "ssh", "docker", "slurm")  # backends that find a run by its id alone
_HOST = re.compile(
    r'"name":\s*"([^"\\]+)",\s*"user":\s*(?:null|"([^"\\]+)"),\s*"agent_python":\s*"([^"\\]+)"'
)


def clean_damaged(folder: RunFolder, error: DamagedError) -> None:
    """Ends what is left of the run, and removes its folder.

    Args:
      folder: the run's folder.
      error: what is damaged.

    Raises:
      LaunchError: it may be running.
      HostError: a host could not be reached, or only run.json could say where the run's job is.
    """
    if folder.end() is None and _age(folder) < _ALIVE_SECS:
        raise LaunchError(
            f"its run.json is damaged, and its launcher has written status.json {_age(folder):.0f} "
            f"s ago: end that process, or try again {_ALIVE_SECS:g} s after its end"
        )
    record = _rest_of(folder)
    backend = record["backend"]
    if backend not in _FOUND_BY_ID or not (record["hosts"] or backend == "slurm"):
        name = backend or "its backend, which is not known,"
        raise HostError(
            f"{error}; but only that file says where {name} runs its job, whose name or "
            f"LAUNCH_RUN_ID ends with {folder.run_id}: end it there, and remove {folder.path}"
        )
    for line in backend_named(backend).clean(record) or ["nothing was left"]:
        print(f"run {folder.run_id}: {plain(line)}")
    shutil.rmtree(folder.path)
    print(f"run {folder.run_id}: its run.json was damaged; its folder is removed")


def _age(folder: RunFolder) -> float:
    try:
        return max(0.0, time.time() - (folder.path / "status.json").stat().st_mtime)
    except OSError:
        return _ALIVE_SECS


def _rest_of(folder: RunFolder) -> Record:
    """Returns what can be known of run.json: parts of its text, and the hosts in other files."""
    text = (folder.path / "run.json").read_bytes().decode(errors="replace")
    backend = re.search(r'"backend":\s*"(\w+)"', text)
    engine = re.search(r'"engine":\s*"([^"\\]+)"', text)
    found = backend[1] if backend else None
    rows = saved_rows(folder.status().get("tasks", []))
    said = {*(row.host for row in rows), *(one.host for one in events.newest_first(folder))}
    said |= {"localhost"} if found == "local" else set()
    known = [*((name, "", "") for name in said if name), *_HOST.findall(text)]
    is_here = all(is_this_machine(name) for name, _, _ in known)
    python = sys.executable if is_here else "python3"
    hosts = {
        name: {"name": name, "user": user or None, "agent_python": given or python}
        for name, user, given in known
    }
    if hosts and found is None:
        found = "local" if is_here else "ssh"
    return {
        "run": folder.run_id,
        "backend": found,
        "hosts": list(hosts.values()),
        "engine": engine[1] if engine else "docker" if found == "docker" else None,
    }
