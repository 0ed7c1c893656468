"""Makes the checksums of changed files right again, so that the code behind them is reached."""

import struct
import zlib

from data_prep.tfrecord.write import FOOTER, HEADER, masked_crc

_PNG = b"\x89PNG\r\n\x1a\n"


def png(data: bytes) -> bytes:
    """Corrects the CRC of each chunk of a PNG, as far as its lengths lead."""
    fixed, place = bytearray(data), len(_PNG)
    while data.startswith(_PNG) and place + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, place)
        end = place + 8 + length
        if end + 4 > len(data):
            break
        fixed[end : end + 4] = struct.pack(">I", zlib.crc32(fixed[place + 4 : end]))
        place = end + 4
    return bytes(fixed)


def tfrecords(data: bytes) -> bytes:
    """Corrects both CRCs of each record, as far as the lengths lead."""
    fixed, place = bytearray(data), 0
    while place + HEADER.size <= len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        fixed[place : place + HEADER.size] = HEADER.pack(
            length, masked_crc(data[place : place + 8])
        )
        end = place + HEADER.size + length
        if end + FOOTER.size > len(data):
            break
        payload = data[place + HEADER.size : end]
        fixed[end : end + FOOTER.size] = FOOTER.pack(masked_crc(payload))
        place = end + FOOTER.size
    return bytes(fixed)


def tar(data: bytes) -> bytes:
    """Corrects the checksum of each block that can be a tar header."""
    fixed = bytearray(data)
    for place in range(0, len(data) - 511, 512):
        block = fixed[place : place + 512]
        if block[257:262] == b"ustar":
            total = sum(block) - sum(block[148:156]) + 8 * 32
            fixed[place + 148 : place + 156] = b"%06o\0 " % total
    return bytes(fixed)
