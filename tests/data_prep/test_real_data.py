"""Reads all 60,000 images of CIFAR-10, if they are beside the repository."""

from pathlib import Path

import numpy as np
import pytest

from data_prep.sources import detect

JPEGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "cifar10-jpeg.tar.xz"


@pytest.mark.system
@pytest.mark.skipif(not JPEGS.exists(), reason="needs ../shared/data/cifar10-jpeg.tar.xz")
def test_the_60000_jpegs_are_read_from_the_tar_as_they_lie():
    dataset = detect.find(str(JPEGS), seed=0).load()
    assert np.bincount(dataset.train.labels).tolist() == [5_000] * 10
    assert np.bincount(dataset.eval.labels).tolist() == [1_000] * 10
