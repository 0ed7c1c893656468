"""Small files appear whole or not at all, and their JSON is for every reader."""

import json
import math
import os
import pwd

import pytest
import tensorflow.compat.v1 as tf

from cifar10.errors import ConfigError
from cifar10.host import files
from cifar10.host.files import exists, read_json, require_writable, write_json, write_text
from tests.failing_disk import every_rename_is_synced, failures_of, fill
from tests.unprivileged import open_folder, unprivileged


@pytest.mark.parametrize("scheme", ["", "file://", "ram://"])
def test_what_is_written_is_read_again(tmp_path, scheme):
    path = f"{scheme}{tmp_path}/result.json"
    tf.io.gfile.makedirs(f"{scheme}{tmp_path}")
    write_json(path, {"accuracy": 0.5, "names": ["Größe", "cat"]})
    write_json(path, {"accuracy": 0.75, "names": []})
    assert read_json(path) == {"accuracy": 0.75, "names": []}


def test_a_name_that_is_not_utf_8_is_written_as_an_escape(tmp_path):
    name = os.fsdecode(b"b\xe4ume")
    write_text(str(tmp_path / "a.html"), f"Größe of {name}")
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == "Größe of b\\udce4ume"


def test_what_may_not_be_seen_is_not_missing():
    with open_folder() as folder:
        closed = folder / "closed"
        closed.mkdir()
        closed.chmod(0)
        with unprivileged(), pytest.raises(tf.errors.PermissionDeniedError):
            exists(f"{closed}/a.json")


@pytest.mark.parametrize("scheme", ["", "file://", "ram://"])
def test_what_is_there_exists(tmp_path, scheme):
    folder = f"{scheme}{tmp_path}/a"
    assert not exists(f"{folder}/file")
    tf.io.gfile.makedirs(folder)
    assert not exists(f"{folder}/file")
    write_text(f"{folder}/file", "")
    assert exists(folder)
    assert exists(f"{folder}/file")
    assert not exists(f"{folder}/file/below")


@pytest.mark.parametrize("scheme", ["", "ram://"])
def test_a_folder_that_can_be_written_is_made_and_left_empty(tmp_path, scheme):
    folder = f"{scheme}{tmp_path}/a/b"
    require_writable(folder, "the folder")
    require_writable(folder, "the folder")
    assert tf.io.gfile.listdir(folder) == []


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (f"{tmp_path}/file", f"{tmp_path}/file/below"):
        with pytest.raises(ConfigError) as refusal:
            require_writable(folder, "the folder")
        assert str(refusal.value).startswith(f"the folder {folder} cannot be written to: ")
        assert f"a directory; {tmp_path}/file belongs to " in str(refusal.value)


def test_a_folder_of_another_user_is_refused_with_its_owner():
    with open_folder() as folder, unprivileged(), pytest.raises(ConfigError) as refusal:
        require_writable(str(folder), "the folder")
    assert str(refusal.value) == (
        f"the folder {folder} cannot be written to: Permission denied; {folder} belongs to user 0, "
        f"and this process is user {pwd.getpwnam('nobody').pw_uid}; let this user write there, or "
        "name another folder"
    )


def test_a_link_to_nothing_is_called_one(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("/nowhere/output")
    with pytest.raises(ConfigError) as refusal:
        require_writable(f"{link}/best", "the folder")
    words = f"; {link} is a link to /nowhere/output, which does not exist; let this user"
    assert words in str(refusal.value)


def test_no_link_is_followed_in_writing(tmp_path, monkeypatch):
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "0")
    (tmp_path / "precious").write_text("all")
    for name in ("run.json.0.part", ".0.write-probe"):
        (tmp_path / name).symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"):
        write_text(str(tmp_path / "run.json"), "{}")
    with pytest.raises(ConfigError, match="symbolic links"):
        require_writable(str(tmp_path), "the folder")
    assert (tmp_path / "precious").read_text() == "all"
    assert len(list(tmp_path.iterdir())) == 3


def test_of_two_processes_that_write_the_later_one_leaves_its_whole_file(tmp_path, monkeypatch):
    path, rename = str(tmp_path / "best.json"), tf.io.gfile.rename

    def after_another(*arguments: str, **settings: bool) -> None:
        monkeypatch.setattr(tf.io.gfile, "rename", rename)
        write_text(path, "another, which is longer")
        rename(*arguments, **settings)

    monkeypatch.setattr(tf.io.gfile, "rename", after_another)
    write_text(path, "own")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("best.json", "own")]


def test_a_full_disk_keeps_no_part_and_is_said_with_the_file(small_disk):
    fill(small_disk)
    with pytest.raises(OSError, match=f"No space left on device: '{small_disk}/a.json'"):
        write_text(f"{small_disk}/a.json", "text" * 1000)
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_a_file_that_is_replaced_while_it_is_read_is_read_whole(tmp_path, monkeypatch):
    path, gfile = str(tmp_path / "run.json"), tf.io.gfile.GFile
    write_json(path, {"status": "completed"})

    def replaced(*arguments: str) -> object:
        file = gfile(*arguments)
        file.seek(0)  # It opens the file.
        write_text(path, "1")
        return file

    monkeypatch.setattr(tf.io.gfile, "GFile", replaced)
    assert read_json(path) == {"status": "completed"}


def test_what_is_no_finite_number_becomes_null(tmp_path):
    path = str(tmp_path / "result.json")
    write_json(path, {"loss": math.nan, "rows": [{"rate": math.inf}, (1, -math.inf)], "ok": 1.5})
    text = (tmp_path / "result.json").read_text()

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    assert json.loads(text, parse_constant=refuse) == {
        "loss": None,
        "rows": [{"rate": None}, [1, None]],
        "ok": 1.5,
    }


def test_whatever_fails_the_file_is_the_old_or_the_new_one(tmp_path):
    path = str(tmp_path / "result.json")
    write_json(path, "old")
    failed = 0
    for _ in failures_of(lambda: write_json(path, "new")):
        failed += 1
        assert read_json(path) in ("old", "new")
        write_json(path, "old")
    assert failed >= 3  # sync, rename, sync the folder
    with every_rename_is_synced() as renamed:
        write_json(path, "new")
    assert renamed == [path]
    assert read_json(path) == "new"


def test_a_file_that_nfs_calls_stale_is_read_again(tmp_path, monkeypatch):
    path = str(tmp_path / "run.json")
    write_json(path, {"status": "completed"})
    stale, gfile = [1, 1], tf.io.gfile.GFile

    def on_nfs(*arguments: str) -> object:
        if stale:
            stale.pop()
            raise tf.errors.AbortedError(None, None, f"{path}; Stale file handle")
        return gfile(*arguments)

    monkeypatch.setattr(tf.io.gfile, "GFile", on_nfs)
    assert read_json(path) == {"status": "completed"}
    stale[:] = [1] * 9
    with pytest.raises(tf.errors.AbortedError):
        read_json(path)
