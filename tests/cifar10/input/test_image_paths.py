import os
import pathlib
from collections.abc import Iterator

import pytest

from cifar10.errors import UserError
from cifar10.input.image_paths import expand
from tests.unprivileged import open_folder, unprivileged


def _make(folder: pathlib.Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def _below(folder: pathlib.Path) -> list[str]:
    errors: list[str] = []
    found = [os.path.relpath(path, folder) for path in expand(str(folder), errors.append)]
    assert errors == []
    return found


def test_links_in_a_circle_end_and_each_folder_is_taken_once(tmp_path: pathlib.Path) -> None:
    for one in "abcdefgh":
        _make(tmp_path, f"all/{one}/0.png")
        for other in "abcdefgh":
            (tmp_path / "all" / one / f"to-{other}").symlink_to(tmp_path / "all" / other)
    (tmp_path / "all" / "a" / "up").symlink_to("../..")
    _make(tmp_path, "beside.png", ".hidden/c.png", "notes.txt")
    found = [os.path.realpath(tmp_path / "all" / path) for path in _below(tmp_path / "all")]
    names = [*(f"all/{one}/0.png" for one in "abcdefgh"), "beside.png"]
    assert sorted(found) == [str(tmp_path.resolve() / name) for name in names]


def test_a_pattern_on_a_file_system_that_tensorflow_does_not_have_is_an_error_of_the_user() -> None:
    with pytest.raises(UserError, match=r"^foo://x/\*\.png cannot be searched: .*scheme 'foo' not"):
        expand("foo://x/*.png", print)


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


def test_folders_and_patterns_stand_for_the_images_in_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("a.png", "b/c.JPG", "b/d/e.gif", "b/.hidden.png", "b/.f/g.png", "h.webp", "i[1].png")
    _make(tmp_path, *names, "b/notes.txt")

    def expanded(place: str) -> list[str]:
        return expand(place, pytest.fail)

    assert expanded("b") == ["b/c.JPG", "b/d/e.gif"]
    assert expanded("*.png") == ["a.png", "i[1].png"]
    assert expanded("i[1].png") == ["i[1].png"]
    assert expanded("b/d*") == expanded("b/d/**") == expanded("**/*.gif") == ["b/d/e.gif"]
    with pytest.raises(UserError, match="matches no file; check the pattern and the current folde"):
        expanded("*.bmp")
