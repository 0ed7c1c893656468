"""Checks the folders of a trainer's volumes before it starts.

The manifest contains the text of this script. An init container runs it in the image, as the task's
user, and Kubernetes shows its last line as the reason why the pod failed. The words after it are
groups of four: `read` or `write`, the volume as the cluster file names it, where it is mounted, and
the folder that the training will use.
"""

import os
import sys
import tempfile


def fault(mode: str, folder: str) -> "OSError | None":
    """Returns the error that reading or writing a folder gives; None if it works.

    A folder that does not exist yet will be made in the nearest folder above it that does.
    """
    while mode == "write" and not os.path.exists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    try:
        if mode == "write":
            with tempfile.TemporaryFile(dir=folder):
                return None
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    file.read(1)
    except OSError as error:
        return None if isinstance(error, FileNotFoundError) else error  # the training tells of it
    return None


def way_out(volume: str, mode: str) -> str:
    """Returns what to change, so that the task's user may use a volume."""
    server, colon, path = volume.partition(":")
    folder = path if colon else volume if volume.startswith("/") else "its root"
    mend = f"chmod -R a+rX {folder}"
    if mode == "write":
        mend = f"chown -R {os.getuid()}:{os.getgid()} {folder}"
    if colon:
        return f"on the NFS server {server}: {mend}"
    if volume.startswith("/"):
        return f"on each node: {mend}"
    return f"its storage does not apply fsGroup; once, in a pod that runs as root: {mend}"


def complaint(mode: str, volume: str, mount: str, folder: str) -> "str | None":
    """Returns what keeps the task's user from a folder, in one line; None if nothing does."""
    error = fault(mode, folder)
    if error is None:
        return None
    verb = "readable" if mode == "read" else "writable"
    place = error.filename if mode == "read" else folder
    words = (
        f"{place} (volume {volume}) is not {verb} for uid {os.getuid()}, gid {os.getgid()}: "
        f"{error.strerror or error}"
    )
    try:
        status = os.stat(mount)
    except OSError:  # a server that does not answer any more, say
        return words
    words += f"; {mount} belongs to {status.st_uid}:{status.st_gid}, "
    words += f"mode {status.st_mode & 0o7777:04o}"
    is_denied = isinstance(error, PermissionError)
    return f"{words}; {way_out(volume, mode)}" if is_denied else words


def main(words: "list[str]") -> int:
    """Prints the first complaint; returns 2 if there is one, else 0."""
    for start in range(0, len(words), 4):
        found = complaint(*words[start : start + 4])
        if found is not None:
            print(found, flush=True)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
