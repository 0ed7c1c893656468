"""Reads all 60,000 images of CIFAR-10, if they are beside the repository."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cifar10 import schema
from data_prep.sources import detect

JPEGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "cifar10-jpeg.tar.xz"


@pytest.mark.skipif(not JPEGS.exists(), reason="needs ../shared/data/cifar10-jpeg.tar.xz")
def test_the_60000_jpegs_are_read_from_the_tar_as_they_lie() -> None:
    dataset = detect.find(str(JPEGS), seed=0).load()
    assert np.bincount(dataset.train.labels).tolist() == [5_000] * 10
    assert np.bincount(dataset.eval.labels).tolist() == [1_000] * 10
    # Decode the last image of each class independently, and look for it where it lies in the tar.
    rows = {"train": 0, "test": 0}
    last: dict[tuple[str, str], tuple[int, bytes]] = {}
    with tarfile.open(JPEGS) as archive:
        for member in archive:
            if not member.isfile():
                continue
            split, name, _ = member.name.split("/")[-3:]
            file = archive.extractfile(member)
            assert file is not None
            last[split, name] = (rows[split], file.read())
            rows[split] += 1
    assert rows == {"train": 50_000, "test": 10_000}
    assert len(last) == 20
    for (split, name), (row, content) in last.items():
        with Image.open(io.BytesIO(content)) as image:
            expected = np.asarray(image).transpose(2, 0, 1).reshape(-1)
        images = dataset.train if split == "train" else dataset.eval
        assert images.labels[row] == schema.CLASS_NAMES.index(name)
        assert np.array_equal(images.pixels[row], expected), (split, name)
