"""Collects facts about a host for a check: versions, code, data, ports, GPUs, disk, peers."""

import contextlib
import hashlib
import json
import os
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional

from launch.agent import processes, tcp_ports
from launch.agent.containers import Containers
from launch.agent.protocol import Message
from launch.agent.task_process import gpus_here

_VERSIONS = """\
import importlib.metadata, json, platform
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps({
    "python": platform.python_version(),
    "tensorflow": version("tensorflow") or version("tensorflow-cpu"),
    "code": version("cifar10-estimator-pipeline"),
}))
"""
_OF_ONE_KIND = ("python", "tensorflow", "python_error", "code", "engine_error", "image")
_CONNECT_SECS = 3.0
_VERSIONS_SECS = 60


def probe(order: Message, listening: list[socket.socket]) -> dict[str, Any]:
    """Collects the facts about this host, which other hosts can then try to connect to.

    Args:
      order: the launcher's message with the keys cwd, data (a folder or None), ports, and engine
        (None without containers). With an engine, also image; otherwise also python and code (a
        list of files and folders relative to cwd; empty if the package is installed).
      listening: a list that gets a socket that listens for each of the ports that is free.

    Returns:
      A dict from the name of each fact to its value; facts about Python and the code are None with
      an engine or without the folder cwd, and those about the engine without one.
    """
    cwd = os.path.expanduser(order["cwd"])
    facts: dict[str, Any] = dict.fromkeys(_OF_ONE_KIND)
    facts["has_workdir"] = os.path.isdir(cwd)
    if order["engine"] is not None:
        facts.update(Containers(order["engine"]).probe(order["image"]))
    elif facts["has_workdir"]:
        facts.update(_versions(order["python"], cwd))
        if order["code"]:
            facts["code"] = _code(cwd, order["code"])
    data = order["data"]
    facts["data"] = _data(os.path.join(cwd, os.path.expanduser(data))) if data else None
    facts["ports"] = []
    for port in order["ports"]:
        try:
            listening.append(tcp_ports.listen(port))
            facts["ports"].append([port, None])
        except OSError as error:
            facts["ports"].append([port, str(error)])
    facts["gpus"] = gpus_here()
    facts["disk_free"] = shutil.disk_usage(cwd if facts["has_workdir"] else "/").free
    return facts


def _versions(python: str, cwd: str) -> dict[str, Any]:
    """Returns the versions of Python and packages, or the error; does not import TensorFlow."""
    try:
        done = processes.execute([python, "-c", _VERSIONS], _VERSIONS_SECS, cwd=cwd)
        if done.returncode == 0:
            return dict(json.loads(done.stdout))
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except (OSError, ValueError, TypeError) as error:
        why = getattr(error, "strerror", None) or str(error)
    return {"python_error": f"{python}: {why}"}


def _code(cwd: str, code: list[str]) -> Optional[str]:
    """Returns a fingerprint of the Python files; None if the first path in `code` is missing."""
    # Unlike pathlib's, `os.path.exists` is False where access is denied.
    places = [Path(cwd, name) for name in code if os.path.exists(os.path.join(cwd, name))]
    if not places or places[0] != Path(cwd, code[0]):
        return None
    digest = hashlib.sha256()
    for path in sorted(path for place in places for path in (place, *place.rglob("*.py"))):
        if os.path.isfile(path):  # an editor's lock is none
            digest.update(os.fsencode(os.path.relpath(path, cwd)) + b"\0")
            with contextlib.suppress(OSError):
                digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _data(folder: str) -> Optional[str]:
    """Returns a fingerprint of the manifest and the records' names and sizes, or None."""
    digest, names = hashlib.sha256(), []
    try:
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.endswith(".tfrecords"):
                names.append(name)
                digest.update(os.fsencode(f"{name} {os.path.getsize(path)}\0"))
            elif name == "manifest.json":
                digest.update(Path(path).read_bytes())
    except OSError:
        return None
    return digest.hexdigest()[:12] if names else None


def unreached(targets: list[tuple[str, int]]) -> list[tuple[str, int, str]]:
    """Connects to all targets in parallel, which are addresses and ports; returns the failures."""
    with ThreadPoolExecutor(max_workers=min(32, len(targets)) or 1) as pool:
        reasons = pool.map(lambda target: _check_connection(*target), targets)
        return [(*target, reason) for target, reason in zip(targets, reasons) if reason]


def _check_connection(address: str, port: int) -> Optional[str]:
    try:
        socket.create_connection((address, port), _CONNECT_SECS).close()
    except socket.timeout:
        return f"no answer within {_CONNECT_SECS:g} s"
    except OSError as error:
        return str(error.strerror or error).lower()
    return None
