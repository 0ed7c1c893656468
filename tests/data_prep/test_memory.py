"""A lack of memory is said as such, whichever process lacks it; no file is blamed for it."""

import subprocess
import sys
from pathlib import Path

from PIL import Image

from tests.data_prep import made

_SET_LIMIT = """
import resource

def limit(megabytes):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    limits = used + (megabytes << 20), resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, limits)
"""
_CONVERT = """
import sys
from data_prep import cli
from data_prep.commands import convert
from PIL import Image

if __name__ == "__main__":
    Image.init()
    limit(60)
    sys.exit(cli.main(sys.argv[1:]))
"""
_UNPICKLE = """
from data_prep.sources import unpickle
from tests.data_prep import made

data = made.batch_pickle(made.pixels(0, 10_000), made.labels(10_000))
limit(15)
try:
    unpickle.load(data, "data_batch_1")
except MemoryError:
    print("too little memory")
"""


def _run(root: Path, script: str, *words: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", _SET_LIMIT + script, *map(str, words)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def _large(path: Path) -> Path:
    """Makes an image whose file is small, and which takes 98 MB as decoded to RGB."""
    Image.new("L", (7_000, 7_000)).save(path)
    return path


def test_a_conversion_out_of_memory_blames_no_file(root: Path, tmp_path: Path) -> None:
    source = made.image_folder(tmp_path / "tree", per_class=1)
    # Processes decode what follows eight batches, each ended by a file of more than 4 MiB.
    for number in range(10):
        photograph = Image.new("RGB", (1_400, 1_000))
        photograph.save(source / "train" / "airplane" / f"photograph-{number}.bmp")
    _large(source / "train" / "truck" / "large.png")
    words = ["--source", source, "--out", tmp_path / "out", "--resize", "stretch"]
    done = _run(root, _CONVERT, *words)
    assert done.stderr == "error: out of memory: building takes about 500 MB\n"
    assert done.returncode == 1


def test_a_batch_is_not_blamed_for_too_little_memory(root: Path) -> None:
    done = _run(root, _UNPICKLE)
    assert (done.stdout, done.stderr) == ("too little memory\n", "")
