"""Encoded images become what the model takes; Pillow, or our use of it, is the judge."""

import io
import os
import pathlib
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from PIL import ExifTags, Image

from cifar10 import image_decoding
from cifar10.errors import UserError
from cifar10.input.image_files import decode, decode_batch, expand, read_image
from cifar10.schema import RESIZES
from tests.data_prep.made import encode
from tests.unprivileged import open_folder, unprivileged

PIXELS = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)


def decoded(data: bytes) -> np.ndarray:
    result = decode(tf.constant(data)).numpy()
    assert (result.dtype, result.shape) == (np.uint8, (32, 32, 3))
    return result


def picture(height: int, width: int) -> np.ndarray:
    """Colours that change smoothly, an edge, and noise."""
    rows, columns = np.mgrid[0:height, 0:width]
    waves = np.stack(
        [np.sin(columns / 5 + rows / 9), np.cos(columns / 3), np.sin(rows / 4)], axis=2
    )
    edge = np.where(columns > width // 2, 40, -40)[:, :, None]
    noise = np.random.default_rng(0).normal(0, 20, (height, width, 3))
    return np.clip(128 + 80 * waves + edge + noise, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("quality", [10, 100])
def test_a_jpegs_pixels_are_those_of_pillow_to_the_last_bit(quality, subsampling):
    options = {"quality": quality, "subsampling": subsampling}
    images = [(Image.fromarray(picture(32, 32)), False), (Image.fromarray(PIXELS), True)]
    images += [(images[0][0].convert(mode), False) for mode in ("L", "CMYK")]
    for image, progressive in images:
        data = encode(image, "JPEG", progressive=progressive, **options)
        # As data_prep decodes it.
        expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        np.testing.assert_array_equal(decoded(data), expected)


@pytest.mark.parametrize("resize", RESIZES)
@pytest.mark.parametrize("size", [(32, 32), (64, 40), (1, 500), (1, 1)])
def test_an_image_is_resized_as_prediction_and_data_prep_do(size, resize):
    image = Image.fromarray(picture(size[1], size[0]))
    for kind in ("PNG", "JPEG"):
        data = encode(image, kind)
        expected = image_decoding.decode(data, resize).pixels.astype(int)
        found = decode(tf.constant(data), resize).numpy()
        assert (found.dtype, found.shape) == (np.uint8, (32, 32, 3))
        difference = np.abs(found.astype(int) - expected).max()
        assert difference <= (0 if size == (32, 32) else 1), kind


ALIKE = {
    "PNG": encode(Image.fromarray(PIXELS)),
    "grey": encode(Image.fromarray(PIXELS).convert("L")),
    "palette": encode(Image.fromarray(PIXELS).convert("P")),
    "one bit": encode(Image.fromarray(PIXELS).convert("1")),
    "alpha": encode(Image.fromarray(PIXELS).convert("RGBA")),
    "16 bits": encode(Image.fromarray(np.arange(1024, dtype=np.uint16).reshape(32, 32) * 63)),
    "grey with alpha": encode(Image.fromarray(PIXELS).convert("LA")),
    "PNG with transparency": encode(
        Image.fromarray(PIXELS).quantize(16), transparency=bytes([0, 128] + [255] * 14)
    ),
    "animated": encode(
        Image.fromarray(PIXELS), save_all=True, append_images=[Image.new("RGB", (32, 32))]
    ),
}


@pytest.mark.parametrize("name", sorted(ALIKE))
def test_an_unusual_file_gives_the_pixels_of_prediction_and_data_prep(name):
    expected = image_decoding.decode(ALIKE[name]).pixels
    np.testing.assert_array_equal(decoded(ALIKE[name]), expected)


@pytest.mark.parametrize(
    "data",
    [encode(Image.fromarray(PIXELS), kind) for kind in ("WEBP", "GIF", "BMP")]
    + [b"", b"BM", b"GIF89a", b"a text"],
    ids=["WEBP", "GIF", "BMP", "empty", "BM", "GIF89a", "text"],
)
def test_what_tensorflow_does_not_decode_is_refused_not_misread(data):
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(tf.constant(data))


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_an_export_takes_an_image_as_it_is_stored_and_prediction_turns_it(kind):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 3  # turned by 180 degrees
    data = encode(Image.fromarray(PIXELS), kind, exif=exif)
    stored = image_decoding.decode(encode(Image.fromarray(PIXELS), kind)).pixels
    np.testing.assert_array_equal(decoded(data), stored)
    np.testing.assert_array_equal(image_decoding.decode(data).pixels, stored[::-1, ::-1])


def test_a_batch_may_mix_formats_and_sizes():
    files = [
        encode(Image.fromarray(PIXELS)),
        encode(Image.new("L", (100, 50), 200)),
        encode(Image.new("RGB", (8, 8), (10, 20, 30)), "JPEG"),
    ]
    batch = decode_batch(tf.constant(files)).numpy()
    assert (batch.dtype, batch.shape) == (np.uint8, (3, 32, 32, 3))
    np.testing.assert_array_equal(batch[0], PIXELS)
    assert (batch[1] == 200).all()
    assert np.abs(batch[2].astype(int) - [10, 20, 30]).max() <= 2
    assert decode_batch(tf.constant([], tf.string)).shape == (0, 32, 32, 3)


def _make(folder: pathlib.Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def _below(folder: pathlib.Path) -> list[str]:
    errors: list[str] = []
    found = [os.path.relpath(path, folder) for path in expand(str(folder), errors.append)]
    assert errors == []
    return found


def test_folders_stand_for_the_images_in_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _make(tmp_path, "b/c.JPG", "b/d/e.gif", "b/.hidden.png", "b/.f/g.png", "i[1].png")
    assert expand("b", pytest.fail) == ["b/c.JPG", "b/d/e.gif"]
    # A name may look like a pattern, or be that of no file, which is said when it is read.
    assert [expand(name, pytest.fail) for name in ("i[1].png", "*.png")] == [
        ["i[1].png"],
        ["*.png"],
    ]


def test_links_in_a_circle_end_and_each_folder_is_taken_once(tmp_path: pathlib.Path) -> None:
    for letter in "abcdefgh":
        _make(tmp_path, f"all/{letter}/0.png")
        for second in "abcdefgh":
            (tmp_path / "all" / letter / f"to-{second}").symlink_to(tmp_path / "all" / second)
    (tmp_path / "all" / "a" / "up").symlink_to("../..")
    _make(tmp_path, "beside.png", ".hidden/c.png", "notes.txt")
    found = [os.path.realpath(tmp_path / "all" / path) for path in _below(tmp_path / "all")]
    names = [*(f"all/{letter}/0.png" for letter in "abcdefgh"), "beside.png"]
    assert sorted(found) == [str(tmp_path.resolve() / name) for name in names]


def test_a_name_with_the_line_end_of_windows_says_so(tmp_path: pathlib.Path) -> None:
    _make(tmp_path, "a.png", "b.png\r")
    errors: list[str] = []
    assert expand(f"{tmp_path}/a.png\r", errors.append) == []
    assert errors == [
        f"'{tmp_path}/a.png\\r' cannot be read: its name ends in a carriage return; the list that "
        "it is from has the line ends of Windows; tr -d '\\r' removes them"
    ]
    assert expand(f"{tmp_path}/b.png\r", pytest.fail) == [f"{tmp_path}/b.png\r"]


@pytest.fixture
def shared() -> Iterator[pathlib.Path]:
    """A folder that every user may read."""
    with open_folder() as folder:
        yield folder


def test_a_folder_that_cannot_be_read_is_named_and_left_out(shared: pathlib.Path) -> None:
    _make(shared, "a.png", "locked/b.png", "none/locked")
    locked = str(shared / "locked")
    os.chmod(locked, 0)
    errors: list[str] = []
    try:
        with unprivileged():
            assert expand(str(shared), errors.append) == [str(shared / "a.png")]
            assert errors == [f"{locked} cannot be read: Permission denied"]
            assert expand(locked, errors.append) == []
            assert errors[1:] == errors[:1]
            with pytest.raises(UserError, match="/none holds no image files"):
                expand(str(shared / "none"), errors.append)
    finally:
        os.chmod(locked, 0o755)


def test_an_image_may_lie_anywhere_that_gfile_opens():
    with tf.io.gfile.GFile("ram://folder/cat.png", "wb") as file:
        file.write(encode(Image.new("RGB", (40, 40)), "WEBP"))
    assert read_image("ram://folder/cat.png", "crop").size == (40, 40)


def test_a_pipe_a_large_file_and_a_name_that_is_no_utf8_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("cifar10.input.image_files._MOST_BYTES", 9)
    (tmp_path / "a.png").write_bytes(bytes(10))
    with pytest.raises(UserError, match="it is larger than the limit for image files, 9 bytes"):
        read_image(str(tmp_path / "a.png"), "stretch")
    os.mkfifo(tmp_path / "cat.png")
    with pytest.raises(
        UserError, match="cannot be read: only regular files are read, no pipes and no"
    ):
        read_image(str(tmp_path / "cat.png"), "stretch")
    with pytest.raises(UserError, match="its name is no UTF-8; rename it"):
        read_image(str(tmp_path / "\udcff.png"), "stretch")
