"""Writes TFRecord files of tf.train.Example protobufs, byte by byte.

TensorFlow would do it too, but takes 3 s to import and builds one message at a time. All our
records have the same length, so a numpy template with two holes makes thousands at once.

A TFRecord file is a sequence of: uint64 length, uint32 masked CRC-32C of the length, payload,
uint32 masked CRC-32C of the payload, all little-endian
(https://www.tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details").
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt

from cifar10 import schema

Pixels = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]

_MASK_DELTA = 0xA282EAD8
_ROWS_AT_ONCE = 4096  # 12.8 MB

HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")


@dataclass(frozen=True)
class Written:
    """A finished record file; `bytes` is its size, `sha256` its digest in hex."""

    name: str
    records: int
    bytes: int
    sha256: str


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and offset as TFRecord wants it, so that CRCs of CRCs stay good."""
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def encode_example(image: bytes, label: int) -> bytes:
    """Serializes one tf.train.Example with the tutorial's features.

    Args:
      image: 3,072 bytes in CHW order.
      label: 0 to 127, which a protobuf varint holds in one byte.
    """
    image_feature = _field(1, _field(1, image))  # Feature.bytes_list.value
    label_feature = _field(3, _field(1, bytes([label])))  # Feature.int64_list.value, packed
    entries = ((schema.IMAGE_KEY, image_feature), (schema.LABEL_KEY, label_feature))
    features = b"".join(
        _field(1, _field(1, key.encode()) + _field(2, feature)) for key, feature in entries
    )
    return _field(1, features)


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field (wire type 2)."""
    return bytes([number << 3 | 2]) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# The label is the last byte of our payload; the image lies where the filler of 0xFF bytes starts.
_PAYLOAD = encode_example(b"\xff" * schema.IMAGE_BYTES, 0)
IMAGE_START = _PAYLOAD.index(b"\xff" * schema.IMAGE_BYTES)
IMAGE_END = IMAGE_START + schema.IMAGE_BYTES
PREFIX, MIDDLE = _PAYLOAD[:IMAGE_START], _PAYLOAD[IMAGE_END:-1]
PAYLOAD_BYTES = len(_PAYLOAD)
RECORD_BYTES = HEADER.size + PAYLOAD_BYTES + FOOTER.size
_LENGTH = struct.pack("<Q", PAYLOAD_BYTES)
_TEMPLATE = np.frombuffer(
    HEADER.pack(PAYLOAD_BYTES, masked_crc(_LENGTH)) + _PAYLOAD + bytes(FOOTER.size), np.uint8
)


def write_records(
    file: BinaryIO, name: str, pixels: Pixels, labels: Pixels, indices: Indices
) -> Written:
    """Writes some images; the caller syncs and renames the file.

    Args:
      file: is appended to.
      name: what the result calls it.
      pixels: uint8 [n, 3072] in CHW order.
      labels: uint8 [n].
      indices: which images, in this order.
    """
    digest = hashlib.sha256()
    for rows in _record_rows(pixels, labels, indices):
        block = rows.data.cast("B")
        digest.update(block)
        file.write(block)
    return Written(name, len(indices), len(indices) * RECORD_BYTES, digest.hexdigest())


def _record_rows(pixels: Pixels, labels: Pixels, indices: Indices) -> Iterator[Pixels]:
    """Yields uint8 [<=4096, RECORD_BYTES] blocks of finished records."""
    start, end = HEADER.size, HEADER.size + PAYLOAD_BYTES
    for first in range(0, len(indices), _ROWS_AT_ONCE):
        chosen = indices[first : first + _ROWS_AT_ONCE]
        rows = np.tile(_TEMPLATE, (len(chosen), 1))
        rows[:, start + IMAGE_START : start + IMAGE_END] = pixels[chosen]
        rows[:, end - 1] = labels[chosen]
        crcs = [masked_crc(row[start:end].tobytes()) for row in rows]
        rows[:, end:] = np.array(crcs, dtype="<u4").view(np.uint8).reshape(-1, FOOTER.size)
        yield rows


class ChannelSums:
    """Mean and deviation of each channel, in pixel values 0 to 255.

    The sums are exact integers, so that the figures do not depend on the order of the images.
    """

    def __init__(self) -> None:
        self.images = 0
        self._sums = np.zeros(schema.CHANNELS, np.uint64)
        self._squares = np.zeros(schema.CHANNELS, np.uint64)

    def add(self, pixels: Pixels) -> None:
        """Takes uint8 [n, 3072]; a few thousand at once, since it needs twice their memory."""
        channels = pixels.reshape(-1, schema.CHANNELS, schema.HEIGHT * schema.WIDTH)
        self.images += len(pixels)
        self._sums += channels.sum(axis=(0, 2), dtype=np.uint64)
        wide = channels.astype(np.uint16)  # 255 squared fits
        self._squares += np.square(wide).sum(axis=(0, 2), dtype=np.uint64)

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Returns (mean, standard deviation), each of three floats; needs one image at least."""
        count = self.images * schema.HEIGHT * schema.WIDTH
        mean = self._sums / count
        deviation = np.sqrt(self._squares / count - mean**2)
        return tuple(map(float, mean)), tuple(map(float, deviation))


def channel_sums(pixels: Pixels, indices: Indices) -> ChannelSums:
    """Sums over the images, uint8 [n, 3072], that `indices` choose."""
    sums = ChannelSums()
    for first in range(0, len(indices), _ROWS_AT_ONCE):
        sums.add(pixels[indices[first : first + _ROWS_AT_ONCE]])
    return sums
