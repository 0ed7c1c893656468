import numpy as np
import pytest

from data_prep.sources.dataset import Images
from data_prep.tfrecord import read, write
from tests.data_prep import made


def _images(count: int) -> Images:
    return Images(made.pixels(0, count), np.array(made.labels(count), np.uint8))


def _file(count: int) -> bytes:
    images = _images(count)
    return write.encode_records(images.pixels, images.labels).tobytes()


def test_a_record_has_the_published_framing_byte_for_byte():
    # CRC-32C of "123456789" is 0xE3069283 (RFC 3720, appendix B.4); rotated right by 15 bits that
    # is 0x2507C60D, and TFRecord adds 0xA282EAD8.
    assert write.masked_crc(b"123456789") == 0xC78AB0E5
    assert _file(1)[:8] == (3110).to_bytes(8, "little")
    assert len(_file(3)) == 3 * 3126


@pytest.mark.slow
def test_we_read_what_tensorflow_writes_in_any_order_of_features():
    import tensorflow as tf

    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"\x07" * 3072]))
    label = tf.train.Feature(int64_list=tf.train.Int64List(value=[9]))
    other = tf.train.Feature(float_list=tf.train.FloatList(value=[1.5, 2.5]))
    for order in ("image label", "label image", "other label image", "image other label"):
        given = {"image": image, "label": label, "other": other}
        # A map has no defined order, so join messages with one entry each; protobuf merges them.
        payload = b"".join(
            tf.train.Example(features=tf.train.Features(feature={n: given[n]})).SerializeToString()
            for n in order.split()
        )
        assert tf.train.Example.FromString(payload).features.feature["label"] == label
        assert read.parse_example(payload) == (b"\x07" * 3072, 9)


@pytest.mark.parametrize(
    ("labels", "found"), [(b"\x08\x05", 5), (b"\x0a\x01\x05", 5), (b"\x0a\x02\x05\x05", None)]
)
def test_a_label_may_be_packed_or_not_but_is_one(labels, found):
    def entry(key: bytes, feature: bytes) -> bytes:
        return write._field(1, write._field(1, key) + write._field(2, feature))

    image = entry(b"image", write._field(1, write._field(1, b"\0" * 3072)))
    payload = write._field(1, entry(b"label", write._field(3, labels)) + image)
    if found is None:
        with pytest.raises(read.RecordError, match="'label' must hold one int64 value"):
            read.parse_example(payload)
    else:
        assert read.parse_example(payload) == (b"\0" * 3072, found)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "no feature 'image', but none"),
        (
            write.encode_example(b"\0" * 3072, 1).replace(b"image", b"pixel"),
            "no feature 'image', but pixel, label",
        ),
        (
            write.encode_example(b"\0" * 3072, 1).replace(b"\x1a\x03\x0a", b"\x12\x03\x0a"),
            "'label' must be int64, is float",
        ),
        (b"\xff" * 50, "varint has no end"),
        (b"\x0b", "wire type 3"),
        (b"\x0a\x7fabc", "ends beyond it"),
        (b"\x08\x01", "wire type 1"),
        (write.encode_example(b"\0" * 3071, 1), "must be 3072 bytes, is 3071"),
        (write.encode_example(b"\0" * 3072, 10), "must be 0 to 9, is 10"),
    ],
)
def test_a_payload_that_is_no_record_of_ours_says_why(payload, reason):
    with pytest.raises(read.RecordError, match=reason):
        read.parse_example(payload)
