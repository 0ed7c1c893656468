"""Makes small sources with known content, in every form that data_prep reads."""

import io
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
from PIL import Image

from cifar10 import schema
from data_prep.sources import detect
from data_prep.sources.dataset import Dataset

Pixels = npt.NDArray[np.uint8]
TRAINING_BATCHES = [f"data_batch_{i}" for i in range(1, 6)]
BATCHES = [*TRAINING_BATCHES, "test_batch"]
PER_BATCH = 20


def pixels(batch: int, count: int = PER_BATCH) -> Pixels:
    return np.random.default_rng(batch).integers(0, 256, (count, 3072), np.uint8)


def labels(count: int = PER_BATCH) -> list[int]:
    return [row % 10 for row in range(count)]


class Raw(bytes):
    """Pickle opcodes that `python2_pickle` inserts unchanged."""


def python2_pickle(value: Any) -> bytes:
    """Pickles a value with protocol 2 as Python 2 did, where a str is a byte string."""
    return b"\x80\x02" + _opcodes(value) + b"."


def _opcodes(value: Any) -> bytes:
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_opcodes, value)) + b"e"
    if isinstance(value, dict):
        items = b"".join(_opcodes(part) for item in value.items() for part in item)
        return b"}(" + items + b"u"
    return array_opcodes(value.shape, value.tobytes())


def array_opcodes(shape: tuple[int, ...], content: bytes, dtype: bytes = b"u1") -> bytes:
    def short(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    dimensions = b"(" + b"".join(map(_opcodes, shape)) + b"t"
    made = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + short(b"b") + b"\x87R"
    )
    kind = b"cnumpy\ndtype\n" + short(dtype) + b"K\x00K\x01\x87R"
    kind += b"(K\x03" + short(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    return made + b"(K\x01" + dimensions + kind + b"\x89" + _opcodes(content) + b"tb"


def batch_pickle(rows: Any, classes: Any) -> bytes:
    return python2_pickle({b"batch_label": b"a batch", b"labels": classes, b"data": rows})


def python_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for index, name in enumerate(BATCHES):
        (folder / name).write_bytes(batch_pickle(pixels(index), labels()))
    names = [name.encode() for name in schema.CLASS_NAMES]
    (folder / "batches.meta").write_bytes(python2_pickle({b"label_names": names}))
    return folder


def binary_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for index, name in enumerate(BATCHES):
        column = np.array(labels(), np.uint8)[:, None]
        rows = np.concatenate([column, pixels(index)], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(schema.CLASS_NAMES) + "\n\n")
    return folder


FINE_NAMES = [f"fine_{label:02}" for label in range(100)]
COARSE_NAMES = [f"coarse_{label:02}" for label in range(20)]


def cifar100_folder(folder: Path, form: str = "python") -> Path:
    """Makes CIFAR-100's files; the coarse label of an image is a fifth of its fine one."""
    folder.mkdir(parents=True)
    kinds = {"fine": FINE_NAMES, "coarse": COARSE_NAMES}
    for index, (name, count) in enumerate({"train": 500, "test": 100}.items()):
        rows, fine = pixels(index, count), np.arange(count) % 100
        if form == "python":
            by_kind = {b"fine_labels": fine.tolist(), b"coarse_labels": (fine // 5).tolist()}
            content = {b"filenames": [b"a.png"] * count, **by_kind, b"data": rows}
            (folder / name).write_bytes(python2_pickle(content))
        else:
            columns = np.stack([fine // 5, fine], axis=1).astype(np.uint8)
            (folder / f"{name}.bin").write_bytes(np.concatenate([columns, rows], 1).tobytes())
    if form == "python":
        meta = {f"{k}_label_names".encode(): [n.encode() for n in v] for k, v in kinds.items()}
        (folder / "meta").write_bytes(python2_pickle(meta))
    else:
        for kind, names in kinds.items():
            (folder / f"{kind}_label_names.txt").write_text("\n".join(names) + "\n")
    (folder / "file.txt~").write_text("")
    return folder


def image_folder(folder: Path) -> Path:
    """Makes folders of 5 images each; image `row` of class k is of (20 k, 20 k + row, 7)."""
    for split in ("train", "test"):
        for label, name in enumerate(schema.CLASS_NAMES):
            path = folder / split / name
            path.mkdir(parents=True)
            for row in range(5):
                content = png(colour=(20 * label, 20 * label + row, 7))
                (path / f"{row:04}.png").write_bytes(content)
    return folder


def kaggle_folder(folder: Path) -> Path:
    """Makes train/1.png to 100.png, trainLabels.csv, and test/ with an image that has no label."""
    lines = ["id,label"]
    for split in ("train", "test"):
        (folder / split).mkdir(parents=True)
    for number in range(100):
        lines.append(f"{number + 1},{schema.CLASS_NAMES[number % 10]}")
        content = png(colour=(20 * (number % 10), number, 7))
        (folder / "train" / f"{number + 1}.png").write_bytes(content)
    (folder / "test" / "1.png").write_bytes(png())
    (folder / "trainLabels.csv").write_text("\n".join(lines) + "\n")
    return folder


def png(size: tuple[int, int] = (32, 32), colour: tuple[int, ...] = (0, 0, 0)) -> bytes:
    return encode(Image.new("RGB", size, colour))


def encode(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """Returns the file of an image."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def load(path: Path, resize: Optional[str] = None, seed: int = 0, **flags: Any) -> Dataset:
    return detect.find(str(path), seed, resize=resize, **flags).load()


def tar(path: Path, folder: Path, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        archive.add(folder, folder.name)
    return path


def zipped(path: Path, folder: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, file.relative_to(folder.parent))
    return path


def packed(kind: Optional[str], folder: Path) -> Path:
    """Packs a folder as a `zip` or, by a mode of tarfile, as a tar; None: leaves it as it is."""
    path = folder.with_name("an archive")
    if kind == "zip":
        return zipped(path, folder)
    return folder if kind is None else tar(path, folder, kind)
