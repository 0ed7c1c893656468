"""Writes TFRecord files of tf.train.Example protobufs, byte by byte.

TensorFlow could do this, but takes 3 s to import and builds one message at a time. All records here
have the same length, so numpy fills in images, labels and CRCs of thousands of records at once.

A TFRecord file is a sequence of: uint64 length, uint32 masked CRC-32C of the length, payload,
uint32 masked CRC-32C of the payload, all little-endian
(https://www.tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details").
"""

import hashlib
import re
import struct
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt

from cifar10 import schema

Pixels = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]

HEADER, FOOTER = struct.Struct("<QI"), struct.Struct("<I")
MAX_CLASSES = 128  # A label is one byte of a protobuf varint.
_MASK_DELTA = 0xA282EAD8
_ROWS_AT_ONCE = 4096  # 12.8 MB


@dataclass(frozen=True)
class Written:
    """A record file that has been written.

    Attributes:
      name: name of the file.
      records: number of records.
      bytes: size in bytes.
      sha256: SHA-256 of the content, in hex.
    """

    name: str
    records: int
    bytes: int
    sha256: str


def masked_crc(data: bytes) -> int:
    """Returns the CRC-32C, rotated and offset as TFRecord requires.

    The mask keeps the CRC useful for data that itself contains CRCs.
    """
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def encode_example(image: bytes, label: int) -> bytes:
    """Serializes one tf.train.Example with the tutorial's features.

    Args:
      image: the 3,072 bytes of the image in CHW order.
      label: 0 to MAX_CLASSES - 1.
    """
    image_feature = _field(1, _field(1, image))  # Feature.bytes_list.value
    label_feature = _field(3, _field(1, bytes([label])))  # Feature.int64_list.value, packed
    entries = ((schema.IMAGE_KEY, image_feature), (schema.LABEL_KEY, label_feature))
    features = b"".join(
        _field(1, _field(1, key.encode()) + _field(2, feature)) for key, feature in entries
    )
    return _field(1, features)


def _field(number: int, payload: bytes) -> bytes:
    """Returns a length-delimited protobuf field (wire type 2)."""
    length, varint = len(payload), bytearray()
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *varint, length]) + payload


# The label is the last byte of the payload; the image is where the 0xFF bytes are.
_PAYLOAD = encode_example(b"\xff" * schema.IMAGE_BYTES, 0)
_BEFORE, _AFTER = map(re.escape, _PAYLOAD[:-1].split(b"\xff" * schema.IMAGE_BYTES))
# What this module writes: an image and a label.
PAYLOAD = re.compile(_BEFORE + b"(.{%d})" % schema.IMAGE_BYTES + _AFTER + b"([\0-\x7f])", re.DOTALL)
_LENGTH_CRC = masked_crc(struct.pack("<Q", len(_PAYLOAD)))
_RECORD = HEADER.pack(len(_PAYLOAD), _LENGTH_CRC) + _PAYLOAD + bytes(FOOTER.size)
_IMAGE = _RECORD.index(b"\xff" * schema.IMAGE_BYTES)  # the position of the image
RECORD_BYTES = len(_RECORD)


def write_records(path: Path, pixels: Pixels, labels: Pixels, indices: Indices) -> Written:
    """Writes images to a new file; the caller syncs it.

    Args:
      path: path of the file.
      pixels: uint8 [n, 3072] in CHW order.
      labels: uint8 [n].
      indices: int64 [k], the images to write, in this order.
    """
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for first in range(0, len(indices), _ROWS_AT_ONCE):
            chosen = indices[first : first + _ROWS_AT_ONCE]
            block = encode_records(pixels[chosen], labels[chosen]).data.cast("B")
            digest.update(block)
            file.write(block)
    return Written(path.name, len(indices), len(indices) * RECORD_BYTES, digest.hexdigest())


def encode_records(pixels: Pixels, labels: Pixels) -> Pixels:
    """Returns complete records, uint8 [n, RECORD_BYTES], of images, uint8 [n, 3072]."""
    rows = np.tile(np.frombuffer(_RECORD, np.uint8), (len(labels), 1))
    payloads = rows[:, HEADER.size : -FOOTER.size]
    rows[:, _IMAGE : _IMAGE + schema.IMAGE_BYTES] = pixels
    payloads[:, -1] = labels
    crcs = [masked_crc(payload.tobytes()) for payload in payloads]
    rows[:, -FOOTER.size :] = np.array(crcs, dtype="<u4").view(np.uint8).reshape(-1, FOOTER.size)
    return rows


def channel_statistics(pixels: Pixels, indices: Indices) -> list[tuple[float, ...]]:
    """Returns means and standard deviations of the channels, in pixel values 0 to 255.

    The sums are exact integers, so the results do not depend on the order of the images.

    Args:
      pixels: uint8 [n, 3072] in CHW order.
      indices: int64 [k], the images that count, at least one.
    """
    sums, squares = np.zeros((2, schema.CHANNELS), np.uint64)
    for first in range(0, len(indices), _ROWS_AT_ONCE):
        some = pixels[indices[first : first + _ROWS_AT_ONCE]]
        channels = some.reshape(-1, schema.CHANNELS, schema.HEIGHT * schema.WIDTH)
        sums += channels.sum(axis=(0, 2), dtype=np.uint64)
        wide = channels.astype(np.uint16)  # Holds 255 squared.
        squares += np.square(wide).sum(axis=(0, 2), dtype=np.uint64)
    count = len(indices) * schema.HEIGHT * schema.WIDTH
    mean = sums / count
    deviation = np.sqrt(squares / count - mean**2)
    return [tuple(map(float, mean)), tuple(map(float, deviation))]
