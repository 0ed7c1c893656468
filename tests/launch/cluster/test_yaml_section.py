"""A section of a YAML file is read into the fields of a dataclass."""

from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import pytest

from launch.cluster.rules import matching, seconds_or_off, setting, whole, yes_or_no
from launch.cluster.yaml_section import read, read_settings
from launch.errors import LaunchError

_WORD = matching("[a-z]+", "a word")


@dataclass(frozen=True)
class Kitchen:
    cook: Optional[str] = setting(None, _WORD)
    pots: int = setting(2, whole(1, 9))
    is_open: bool = setting(False, yes_or_no, name="open")
    wait_secs: Optional[float] = setting(60, seconds_or_off)
    spices: tuple[str, ...] = setting((), _WORD)
    shelf: tuple[tuple[str, str], ...] = setting((), str, key_rule=_WORD)
    guests: int = 4


def kitchen(folder: Path, text: str) -> Kitchen:
    path = folder / "lab.yaml"
    path.write_text(text)
    return read_settings(read(str(path)), Kitchen)


def test_each_field_is_read_by_its_rule_and_type(tmp_path: Path) -> None:
    text = "cook: ann\npots: 3\nopen: true\nwait_secs: off\nspices: [salt, dill]\nshelf: {a: 1}\n"
    assert kitchen(tmp_path, text) == Kitchen(
        "ann", 3, True, None, ("salt", "dill"), (("a", "1"),), 4
    )


def test_what_a_section_leaves_out_has_the_fields_default(tmp_path: Path) -> None:
    assert kitchen(tmp_path, "{}") == Kitchen(None, 2, False, 60, (), (), 4)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "pots: 3\nguests: 5\n",
            "lab.yaml:2: guests is not a key of the file; known: cook, pots, open, ",
        ),
        ("is_open: true\n", "lab.yaml:1: is_open is not a key of the file; did you mean open?"),
        ("cook:\n- ann\n", "lab.yaml:2: cook must be one value, not a list or a mapping"),
        ("spices: salt\n", "lab.yaml:1: spices must be a list (`- value` lines)"),
        ("spices:\n- salt\n- 7\n", "lab.yaml:3: spices must be a word, got '7'"),
        ("shelf: [a]\n", "lab.yaml:1: shelf must be a mapping (`key: value` lines)"),
        ("shelf:\n  7: b\n", "lab.yaml:2: a key of shelf must be a word, got '7'"),
        ("shelf:\n  a: [b]\n", "lab.yaml:2: a must be one value, not a list or a mapping"),
        ("pots: 3\n[a, b]: c\n", "lab.yaml:2: a key of the file must be one word"),
    ],
)
def test_what_is_against_a_rule_or_a_type_is_refused(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(LaunchError) as raised:
        kitchen(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path}/{error}")
