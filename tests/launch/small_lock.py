"""A lock file with one small package, which pip installs without a network."""

import hashlib
import zipfile
from pathlib import Path

NAME = "requirements-small.lock"


def write_small_lock(root: Path, wheels: Path, version: str = "2.15.1") -> None:
    """Writes requirements-small.lock into `root`; its package says that it is TensorFlow.

    Args:
      root: the folder for the lock.
      wheels: the folder for the package's file, which all hosts can read.
      version: the version that the package claims.
    """
    wheels.mkdir(parents=True, exist_ok=True)
    wheel = wheels / f"tensorflow-{version}-py3-none-any.whl"
    info = f"tensorflow-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tensorflow\nVersion: {version}\n"
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lines = (
        "--no-index",
        f"--find-links {wheels}",
        f"tensorflow=={version} --hash=sha256:{digest}",
    )
    (root / NAME).write_text("\n".join(lines) + "\n")
