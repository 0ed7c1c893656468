"""Reads TFRecord files of tf.train.Example and checks their framing and content.

It also reads what TensorFlow writes: features in any order, packed or not, among other features.
"""

import gzip
import itertools
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from cifar10 import schema
from data_prep.tfrecord.write import FOOTER, HEADER, PAYLOAD, masked_crc

# An example takes about 3.1 kB; a length beyond this is damage, not an example.
MAX_RECORD_BYTES = 1 << 20

# Number of damaged records after which the reader gives up on a file.
MAX_DAMAGES = 20

_BYTES, _FLOAT, _INT64 = 1, 2, 3  # fields of a Feature
_TYPES = {_BYTES: "bytes", _FLOAT: "float", _INT64: "int64"}


class RecordError(ValueError):
    """A record is damaged; the message describes the damage."""


def scan(
    path: Path, damages: list[str], num_classes: int = schema.NUM_CLASSES
) -> Iterator[tuple[bytes, int]]:
    """Reads every record of a file and checks framing, CRCs, features and label.

    Damage is appended to `damages`, not raised. After a record with damaged content, reading goes
    on with the next one; after a damaged length it ends, since no further record can be found. It
    also ends after `MAX_DAMAGES` damaged records; the last description says so.

    Args:
      path: path of the file.
      damages: descriptions of the damage, with file and record.
      num_classes: the number of classes.

    Yields:
      The 3,072 bytes in CHW order and the label of each undamaged record.
    """
    position, before = 0, len(damages)
    with cast(IO[bytes], gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as file:
        for number in itertools.count():
            where = f"{path}: record {number} (byte {position})"
            try:
                record = _next_record(file)
            except (RecordError, EOFError, zlib.error, gzip.BadGzipFile) as error:
                damages.append(f"{where}: {error}; what follows cannot be read")
                return
            if not record:
                return
            try:
                payload, footer = record[HEADER.size : -FOOTER.size], record[-FOOTER.size :]
                if masked_crc(payload) != FOOTER.unpack(footer)[0]:
                    raise RecordError("the CRC of its content is wrong")
                yield parse_example(payload, num_classes)
            except RecordError as error:
                damages.append(f"{where}: {error}")
                if len(damages) == before + MAX_DAMAGES:
                    damages.append(f"{path}: gave up after {MAX_DAMAGES} damaged records")
                    return
            position += len(record)


def _next_record(file: IO[bytes]) -> bytes:
    """Reads the length, content and CRC of a record; returns no bytes at the end of the file."""
    header = file.read(HEADER.size)
    if not header:
        return b""
    if len(header) < HEADER.size:
        raise RecordError(f"truncated: {len(header)} of {HEADER.size} header bytes")
    length, crc = HEADER.unpack(header)
    if masked_crc(header[:8]) != crc:
        raise RecordError("the CRC of its length is wrong")
    if length > MAX_RECORD_BYTES:
        raise RecordError(f"its length is {length} bytes, more than any example of 32x32 pixels")
    rest = file.read(length + FOOTER.size)
    if len(rest) < length + FOOTER.size:
        raise RecordError(f"truncated: {len(rest)} of {length + FOOTER.size} bytes")
    return header + rest


def parse_example(payload: bytes, num_classes: int = schema.NUM_CLASSES) -> tuple[bytes, int]:
    """Reads the two features of one serialized tf.train.Example.

    Returns:
      The 3,072 bytes of the image in CHW order, and its label, below `num_classes`.

    Raises:
      RecordError: the payload is not an Example, or a feature is missing or has another type,
        length or range.
    """
    ours = PAYLOAD.fullmatch(payload)  # It takes a 20th of the time.
    image, label = (ours[1], ours[2][0]) if ours else _parse_any(payload)
    if len(image) != schema.IMAGE_BYTES:
        rule = f"{schema.IMAGE_KEY!r} must be {schema.IMAGE_BYTES} bytes"
        raise RecordError(f"{rule}, is {len(image)}")
    if not 0 <= label < num_classes:
        raise RecordError(f"{schema.LABEL_KEY!r} must be 0 to {num_classes - 1}, is {label}")
    return image, label


def _parse_any(payload: bytes) -> tuple[bytes, int]:
    features: dict[bytes, bytes] = {}
    for group in _fields(payload)[1]:  # Example.features
        for entry in _fields(group)[1]:  # Features.feature: a name and a Feature
            features.update(zip(_fields(entry)[1], _fields(entry)[2]))
    image = _only_value(features, schema.IMAGE_KEY, _BYTES)
    number = _only_value(features, schema.LABEL_KEY, _INT64)
    label, end = _read_varint(number, 0)
    if end != len(number):  # a packed list
        raise RecordError(f"{schema.LABEL_KEY!r} must hold one int64 value, holds more")
    return image, label - (1 << 64) if label >> 63 else label


def _only_value(features: dict[bytes, bytes], name: str, wanted: int) -> bytes:
    """Returns the value of a feature, `wanted` being the field of its type."""
    if name.encode() not in features:
        held = ", ".join(key.decode("utf-8", "replace") for key in features)
        raise RecordError(f"it has no feature {name!r}, but {held[:100] or 'none'}")
    lists, kind = _fields(features[name.encode()]), _TYPES[wanted]
    found = [_TYPES[field] for field in sorted(_TYPES.keys() & lists.keys())]
    if found and kind not in found:
        raise RecordError(f"{name!r} must be {kind}, is {found[0]}")
    values = [value for held in lists[wanted] for value in _fields(held)[1]]
    if len(values) != 1:
        raise RecordError(f"{name!r} must hold one {kind} value, holds {len(values)}")
    return values[0]


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """Returns the bytes of the values of each field in a serialized protobuf message.

    Raises:
      RecordError: the message is not valid, or has a field of four or eight bytes.
    """
    found, position = defaultdict[int, list[bytes]](list), 0
    while position < len(message):
        tag, start = _read_varint(message, position)
        if tag & 7 not in (0, 2):
            raise RecordError(f"it is no tf.train.Example (wire type {tag & 7})")
        value, position = _read_varint(message, start)
        if tag & 7 == 2:  # It was the length of what follows.
            if value > len(message) - position:
                raise RecordError("it is no tf.train.Example (a field ends beyond it)")
            start, position = position, position + value
        found[tag >> 3].append(message[start:position])
    return found


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise RecordError("it is no tf.train.Example (a varint has no end)")
