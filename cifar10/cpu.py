"""What the system says of this machine's CPU. Standard library only."""

import pathlib
import platform

_INFO = "/proc/cpuinfo"


def cpu_name(path: str = _INFO) -> str:
    """The CPU's model; the architecture where the system does not say."""
    return _first("model name", path) or platform.processor() or platform.machine()


def cpu_flags(path: str = _INFO) -> set[str]:
    """The first CPU's feature flags; empty where the system does not say."""
    return set(_first("flags", path).split())


def _first(name: str, path: str) -> str:
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError:
        return ""
    found = [line.split(":", 1)[1].strip() for line in lines if line.startswith(name)]
    return found[0] if found else ""
