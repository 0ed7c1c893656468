"""The parsers of data_prep: pickles, batches, archives, images, records, manifests, flags."""

import functools
import gzip
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cifar10 import schema
from data_prep import cli
from data_prep.errors import DamageError, SourceError
from data_prep.folder import manifest
from data_prep.sources import batches, image_tree, unpickle
from data_prep.sources.dataset import check_classes
from data_prep.sources.members import Member
from data_prep.tfrecord import read, write
from tests.data_prep import made
from tests.fuzz import mutate, repair
from tests.fuzz.parser import Parser


def _member(name: str, data: bytes) -> Member:
    return Member(name, len(data), lambda: io.BytesIO(data))


def _pickles() -> list[bytes]:
    names = [name.encode() for name in schema.CLASS_NAMES]
    return [made.python2_pickle({b"label_names": names})]


def _python_batches() -> list[bytes]:
    return [made.batch_pickle(made.pixels(0, 2), made.labels(2))]


def _read_pickle(data: bytes, _: Path) -> None:
    unpickle.load(data, "batches.meta")


def _read_python_batch(data: bytes, _: Path) -> None:
    images = batches.PYTHON.parse(_member("data_batch_1", data))
    assert images.pixels.shape == (len(images), 3072)
    assert images.labels.max() <= 9


def _binary_batches() -> list[bytes]:
    column = np.array(made.labels(2), np.uint8)[:, None]
    return [np.concatenate([column, made.pixels(1, 2)], axis=1).tobytes()]


def _read_binary_batch(data: bytes, _: Path) -> None:
    images = batches.BINARY.parse(_member("data_batch_1.bin", data))
    assert images.labels.max() <= 9


def _class_names() -> list[bytes]:
    return ["\n".join(schema.CLASS_NAMES).encode()]


def _read_class_names(data: bytes, _: Path) -> None:
    batches.check_meta(_member("batches.meta.txt", data))


def _image(kind: str, mode: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new(mode, (32, 32), 7).save(file, format=kind, **options)
    return file.getvalue()


def images() -> list[bytes]:
    """Returns an image of each format and mode, animations and EXIF data."""
    modes = {
        "PNG": ("RGB", "L", "P", "RGBA", "I;16"),
        "JPEG": ("RGB", "L", "CMYK"),
        "WEBP": ("RGB", "RGBA"),
        "GIF": ("L", "P"),
        "BMP": ("1", "L", "P", "RGB", "RGBA"),
    }
    found = [_image(kind, mode) for kind, some in modes.items() for mode in some]
    exif = Image.Exif()
    exif[0x0112] = 6
    more = [Image.new("RGB", (32, 32), "red")]
    for kind in ("PNG", "WEBP", "GIF"):
        found.append(_image(kind, "RGB", save_all=True, append_images=more))
    return found + [_image(kind, "RGB", exif=exif) for kind in ("PNG", "JPEG", "WEBP")]


def images_of_export() -> list[bytes]:
    """Returns an image of each format that TensorFlow decodes."""
    kinds = (("PNG", "RGB"), ("PNG", "P"), ("JPEG", "RGB"), ("GIF", "P"), ("BMP", "RGB"))
    return [_image(kind, mode) for kind, mode in kinds]


def _decode(data: bytes, _: Path) -> None:
    assert len(image_tree.decode_file(data, "x.png")) == 3072


def _decode_and_resize(data: bytes, _: Path) -> None:
    for resize in schema.RESIZES:
        assert len(image_tree.decode_file(data, "x.png", resize)) == 3072


@functools.cache
def _archive_files() -> tuple[tuple[str, bytes], ...]:
    """Returns the names and contents of a tiny binary set, and of an image with its folders."""
    batch = np.concatenate([np.arange(10, dtype=np.uint8)[:, None], made.pixels(1, 10)], axis=1)
    names = [f"{name}.bin" for name in made.BATCHES]
    return (
        ("batches/", b""),
        *((f"batches/{name}", batch.tobytes()[: 3073 * 10]) for name in names),
        ("train/cat/", b""),
        ("train/cat/0.png", made.png()),
    )


def _tar(form: int, compression: str = "") -> bytes:
    file, long = io.BytesIO(), 0 if form == tarfile.USTAR_FORMAT else 120
    with tarfile.open(fileobj=file, mode=f"w:{compression}", format=form) as archive:  # type: ignore[call-overload]
        for name, content in _archive_files():
            info = tarfile.TarInfo(name.rstrip("/") + ("x" * long if "png" in name else ""))
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


@functools.cache
def _tars() -> tuple[bytes, ...]:
    return tuple(
        _tar(form) for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
    )


@functools.cache
def _compressed_tars() -> tuple[bytes, ...]:
    return tuple(_tar(tarfile.USTAR_FORMAT, compression) for compression in ("gz", "bz2", "xz"))


@functools.cache
def _zips() -> tuple[bytes, ...]:
    made_zips = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive:
            for name, content in _archive_files():
                archive.writestr(name, content)
        made_zips.append(file.getvalue())
    return tuple(made_zips)


def _load(data: bytes, folder: Path) -> None:
    path = folder / "source"
    path.write_bytes(data)
    dataset = made.load(path)
    check_classes(dataset)
    assert min(len(dataset.train), len(dataset.eval)) > 0


def _load_gzipped(data: bytes, folder: Path) -> None:
    _load(gzip.compress(data, 1), folder)


def _records() -> list[bytes]:
    labels = np.array(made.labels(2), np.uint8)
    return [write.encode_records(made.pixels(0, 2), labels).tobytes()]


def _scan(data: bytes, folder: Path) -> None:
    path = folder / "train.tfrecords"
    path.write_bytes(data)
    damages: list[str] = []
    assert all(len(image) == 3072 and 0 <= label < 10 for image, label in read.scan(path, damages))
    assert all("\n" not in damage for damage in damages)


def _examples() -> list[bytes]:
    """Returns our layout, and another order with a label that is not packed."""
    ours = write.encode_example(b"\7" * 3072, 3)
    image = write._field(2, write._field(1, write._field(1, b"\7" * 3072)))
    label = write._field(2, write._field(3, b"\x08\x03"))
    entries = (("label", label), ("other", b""), ("image", image))
    features = [write._field(1, write._field(1, key.encode()) + value) for key, value in entries]
    return [ours, write._field(1, b"".join(features))]


def _parse_example(data: bytes, _: Path) -> None:
    image, label = read.parse_example(data)
    assert len(image) == 3072
    assert 0 <= label <= 9


def manifests() -> list[bytes]:
    """Returns the manifest of a folder with a file for each split."""
    splits = {
        split: manifest.Split(2, (write.Written(f"{split}.tfrecords", 2, 6_000, "0" * 64),))
        for split in schema.SPLITS
    }
    origin, sums = manifest.Origin("synthetic", "x", "0" * 64), (1.0, 2.0, 3.0)
    made_one = manifest.Manifest(
        origin, schema.CLASS_NAMES, 0, manifest.Options(), splits, sums, sums
    )
    return [made_one.to_json().encode()]


def _read_manifest(data: bytes, folder: Path) -> None:
    (folder / schema.MANIFEST_NAME).write_bytes(data)
    found = manifest.read(folder)
    if found is not None:
        found.to_json()


COMMANDS = [
    b"--source\0synthetic\0--out\0DIR\0--validation-size=5\0--shards=2\0--seed\0003",
    b"convert\0--source=x.tar.gz\0--force\0--synthetic-size\00050",
    b"verify\0DIR",
    b"--source=photos\0--resize\0crop\0--out\0DIR",
    b"show\0DIR\0--out\0grid.png\0--split=train\0--count\0005\0--seed=0",
    b"download\0--out\0DIR\0--archive=binary\0--url\0http://[::1]/",
]


def _parse_command(data: bytes, _: Path) -> None:
    ended = mutate.exit_code(lambda: cli._parse(mutate.words_of(data)))
    assert not isinstance(ended, int) or ended in (0, 2)


PARSERS = [
    Parser("class-names-pickle", _pickles, _read_pickle, (SourceError,)),
    Parser("python-batch", _python_batches, _read_python_batch, (SourceError,)),
    Parser("binary-batch", _binary_batches, _read_binary_batch, (SourceError,)),
    Parser("class-names", _class_names, _read_class_names, (SourceError,), mutate.of_text),
    Parser("image", images, _decode, (SourceError,), repair=repair.png),
    Parser(
        "resized-image",
        images,
        _decode_and_resize,
        (SourceError,),
        repair=repair.png,
        most_bytes=512 << 20,
    ),  # fmt: skip
    Parser("tar", lambda: list(_tars()), _load, (SourceError,), repair=repair.tar),
    Parser("tar-in-gzip", lambda: list(_tars()), _load_gzipped, (SourceError,), repair=repair.tar),
    Parser("compressed-tar", lambda: list(_compressed_tars()), _load, (SourceError,)),
    Parser("zip", lambda: list(_zips()), _load, (SourceError,)),
    Parser("tfrecords", _records, _scan, repair=repair.tfrecords),
    Parser("example", _examples, _parse_example, (read.RecordError,)),
    Parser("manifest", manifests, _read_manifest, (DamageError,), mutate.of_json),
    Parser("data-prep-flags", lambda: COMMANDS, _parse_command, (), mutate.of_words),
]
