"""Reads all 60,000 images of CIFAR-10, if they are beside the repository."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data_prep.sources import detect

JPEGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "cifar10-jpeg.tar.xz"


@pytest.mark.skipif(not JPEGS.exists(), reason="needs ../shared/data/cifar10-jpeg.tar.xz")
def test_the_60000_jpegs_are_read_from_the_tar_as_they_lie() -> None:
    dataset = detect.find(str(JPEGS), seed=0).load()
    assert np.bincount(dataset.train.labels).tolist() == [5_000] * 10
    assert np.bincount(dataset.eval.labels).tolist() == [1_000] * 10
    # Read one image independently: find it by its name, and decode it with Pillow.
    with tarfile.open(JPEGS) as archive:
        member = next(m for m in archive if m.name.endswith("/airplane/0000.jpg"))
        file = archive.extractfile(member)
        assert file is not None
        with Image.open(io.BytesIO(file.read())) as image:
            expected = np.asarray(image).transpose(2, 0, 1).reshape(-1)
    split = dataset.train if "train/" in member.name else dataset.eval
    assert (split.pixels[split.labels == 0] == expected).all(axis=1).any()
