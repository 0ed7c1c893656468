"""A setting from outside the tree, that of docs/extending.md: one field, and nothing elsewhere."""

import dataclasses
from typing import Any

import pytest

from cifar10.config.flags import parse
from cifar10.errors import ConfigError
from tests.documents import code_blocks


@pytest.fixture(scope="module")
def config_type() -> Any:
    names: dict[str, Any] = {"__name__": "own"}
    (code,) = code_blocks("docs/extending.md", "A setting", "python")
    exec(code, names)
    return names["Config"]


def test_it_is_a_flag_with_its_own_check(config_type):
    assert parse([], config_type).purpose is None
    assert dataclasses.replace(parse(["--purpose=a b"], config_type), seed=2).purpose == "a b"
    with pytest.raises(ConfigError) as refusal:
        parse(["--purpose", "a" * 81], config_type)
    assert str(refusal.value).startswith("--purpose must be a line of at most 80 characters, got ")
    with pytest.raises(ConfigError, match="there is no flag --purpos=a; did you mean --purpose?"):
        parse(["--purpos=a"], config_type)
    with pytest.raises(ConfigError, match="there is no flag --purpose=a; "):
        parse(["--purpose=a"])


def test_a_file_gives_it_where_it_applies(config_type, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("purpose: b\n")
    assert parse(["--config", str(path)], config_type).purpose == "b"
    assert parse(["--config", str(path), "--purpose=c"], config_type).purpose == "c"
    assert parse(["--config", str(path), "--mode=export"], config_type).purpose is None
    with pytest.raises(ConfigError) as refusal:
        parse(["--purpose=c", "--mode=export"], config_type)
    assert str(refusal.value) == (
        "--purpose c is for --mode train_and_evaluate, got --mode export; the result of the "
        "training names it"
    )
    path.write_text("seed: 1\npurpose: ''\n")
    with pytest.raises(ConfigError, match="a.yaml:2: purpose must be a line of at most 80 char"):
        parse(["--config", str(path)], config_type)
