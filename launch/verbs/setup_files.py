"""Says which files a host needs: the code, and the records."""

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from launch.cluster.tasks import CODE, PACKAGES, SCRIPT
from launch.errors import LaunchError

_WITHOUT_GIT = (*CODE, "launch", "Makefile", "pyproject.toml")
_SILENT = ("__pycache__", "built")


@dataclass(frozen=True)
class Files:
    """Files to have on a host.

    Attributes:
      folder: the folder here.
      digests: path in that folder -> SHA-256.
    """

    folder: Path
    digests: dict[str, str]

    def size(self, paths: "list[str]") -> int:
        """Returns the bytes of some of the files."""
        return sum((self.folder / path).stat().st_size for path in paths)


def code_files(root: Path, requirements: str) -> Files:
    """Returns the code to copy: what Git tracks in a checkout, as it is in the working tree.

    Files of the packages that Git does not know yet are copied, too, unless it ignores them. Where
    Git does not track the checkout, or cannot be asked, that is what an archive has for a host.

    Args:
      root: the folder with the code.
      requirements: the name of the requirements file in it, which is always copied.

    Raises:
      LaunchError: the folder is no checkout, or has no such requirements file.
    """
    if not (root / SCRIPT).is_file():
        raise LaunchError(
            f"setup copies a checkout, but {root} has no {SCRIPT}; run it in a checkout, or "
            "install the same package on the hosts"
        )
    if not (root / requirements).is_file():
        raise LaunchError(
            f"--requirements must be a file in {root}, such as requirements.lock, got "
            f"{requirements!r}"
        )
    names = _of_git(root) or _of_folders(root)
    names |= {path.name for path in root.glob("requirements*")} | {requirements}
    paths = sorted(name for name in names if (root / name).is_file())
    return Files(root, {path: digest(root / path) for path in paths})


def records(folder: Path) -> Optional[Files]:
    """Returns the records in a folder, its manifest last; None if it has no complete set."""
    if (folder / "INCOMPLETE").exists():
        return None
    paths = sorted(folder.glob("*.tfrecords")) if folder.is_dir() else []
    known = _of_manifest(folder / "manifest.json")
    found = {path.name: known.get(path.name) or digest(path) for path in paths}
    if not found or set(known) - set(found):
        return None
    if known:
        found["manifest.json"] = digest(folder / "manifest.json")
    return Files(folder, found)


def digest(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            found.update(data)
    return found.hexdigest()


def _of_manifest(path: Path) -> dict[str, str]:
    """Returns the files of a manifest and their SHA-256; {} if it cannot be read."""
    try:
        splits = json.loads(path.read_bytes())["splits"].values()
        return {str(one["name"]): str(one["sha256"]) for split in splits for one in split["files"]}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _of_git(root: Path) -> set[str]:
    """Returns the files that Git tracks, and the new ones of our packages.

    Empty if Git cannot be asked, or does not track the script: an archive may be unpacked in the
    checkout of something else.
    """
    found: set[str] = set()
    for words in (("--cached",), ("--others", "--exclude-standard", "--", *PACKAGES)):
        command = ["git", "-C", str(root), "ls-files", "-z", *words]
        try:
            done = subprocess.run(command, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return set()
        found |= {name for name in done.stdout.decode(errors="surrogateescape").split("\0") if name}
    return found if SCRIPT in found else set()


def _of_folders(root: Path) -> set[str]:
    """Returns the files of an unpacked archive that a host needs."""
    found: set[str] = set()
    for part in _WITHOUT_GIT:
        for path in (root / part).rglob("*") if (root / part).is_dir() else [root / part]:
            if not set(path.parts) & set(_SILENT):
                found.add(str(path.relative_to(root)))
    return found
