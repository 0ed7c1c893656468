"""TensorFlow still heeds the variable that turns oneDNN on, and tells."""

import os
import platform

import pytest

from cifar10.tf_internals import onednn


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs x86-64")
def test_tensorflow_uses_onednn_unless_the_variable_forbids_it():
    # `make test-cpus` runs this with both values.
    assert onednn.is_on() == (os.environ["TF_ENABLE_ONEDNN_OPTS"] == "1")


def test_scripts_that_know_nothing_of_ours_turn_it_on_as_we_do(root):
    paths = [path for name in ("benchmarks", "examples") for path in (root / name).rglob("*.py")]
    loading = [text for text in (path.read_text() for path in paths) if "\nimport tensor" in text]
    scripts = [text for text in loading if "__main__" in text]
    assert scripts
    for text in scripts:
        assert 0 < text.index("TF_ENABLE_ONEDNN_OPTS") < text.index("\nimport tensor")
