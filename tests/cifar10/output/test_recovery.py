"""A run continues from the newest sound checkpoint, whatever happened to the others."""

import pathlib
import shutil
from typing import Callable

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.errors import DamagedError, UserError
from cifar10.output import checkpoints, recovery
from cifar10.output.metrics import Metrics
from tests.cifar10.saved import save, value
from tests.failing_disk import flip_bit
from tests.unprivileged import open_folder, unprivileged

DATA = "data-00000-of-00001"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Checkpoints of steps 10, 20 and 30, which TensorFlow's file names; 20 is the best one."""
    folder = tmp_path_factory.mktemp("saved")
    names = [f"model.ckpt-{step}" for step in (10, 20, 30)]
    for step in (10, 20, 30):
        save(folder, step, step / 10)
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    (folder / "checkpoint").write_text("\n".join(lines))
    checkpoints.keep_if_best(str(folder), str(folder / names[1]), 20, 0.5)
    return folder


@pytest.fixture
def output(saved: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of them."""
    return pathlib.Path(shutil.copytree(saved, tmp_path / "output"))


def go_on(output: pathlib.Path) -> tuple[str, list[str]]:
    """Returns what training continues from, as TensorFlow sees it afterwards, and what was said."""
    said: list[str] = []
    found = recovery.checkpoint_to_continue(str(output), said.append)
    assert found == checkpoints.latest(str(output))
    assert found is not None
    return found, said


def truncate(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def randomise(path: pathlib.Path) -> None:
    path.write_bytes(np.random.RandomState(0).bytes(300))


def test_a_sound_latest_checkpoint_is_used_without_a_word(output):
    before = sorted(path.name for path in output.rglob("*"))
    assert go_on(output) == (str(output / "model.ckpt-30"), [])
    assert sorted(path.name for path in output.rglob("*")) == before


@pytest.mark.parametrize(
    ("damage", "ending"),
    [(flip_bit, DATA), (truncate, DATA), (pathlib.Path.unlink, DATA), (randomise, "index")],
)
def test_a_damaged_latest_checkpoint_gives_way_to_the_one_before(
    output: pathlib.Path, damage: Callable[[pathlib.Path], None], ending: str
) -> None:
    damage(output / f"model.ckpt-30.{ending}")
    found, said = go_on(output)
    assert found == str(output / "model.ckpt-20")
    assert value(found) == 2.0
    assert len(said) == 2
    assert said[0].startswith(f"{output}/model.ckpt-30 is damaged (")
    assert said[0].endswith("); its files now end in .damaged")
    assert said[1] == "training continues from the newest sound checkpoint, model.ckpt-20"
    state = tf.train.get_checkpoint_state(str(output))
    assert [pathlib.Path(path).name for path in state.all_model_checkpoint_paths] == [
        "model.ckpt-10",
        "model.ckpt-20",
    ]
    kept = {path.name for path in output.glob("model.ckpt-30*")}
    lost = {f"model.ckpt-30.{ending}.damaged"} if damage is pathlib.Path.unlink else set()
    assert kept == {"model.ckpt-30.index.damaged", f"model.ckpt-30.{DATA}.damaged"} - lost


@pytest.mark.parametrize("damage", [pathlib.Path.unlink, randomise])
def test_without_tensorflows_file_the_newest_checkpoint_is_found(
    output: pathlib.Path, damage: Callable[[pathlib.Path], None]
) -> None:
    damage(output / "checkpoint")
    assert go_on(output) == (
        str(output / "model.ckpt-30"),
        ["training continues from the newest sound checkpoint, model.ckpt-30"],
    )


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("model_checkpoint_path", "../other/model.ckpt-30"),
        ("model_checkpoint_path", "{}/model.ckpt-30"),
        ("all_model_checkpoint_paths", "in/model.ckpt-30"),
    ],
)
def test_a_checkpoint_elsewhere_is_neither_followed_nor_removed(
    output: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, name: str, line: str
) -> None:
    name = name.format(tmp_path_factory.getbasetemp())
    names = {"model_checkpoint_path": "model.ckpt-10", line: name}
    names.setdefault("all_model_checkpoint_paths", "model.ckpt-10")
    text = "".join(f'{key}: "{value}"\n' for key, value in names.items())
    (output / "checkpoint").write_text(text)
    assert checkpoints.latest(str(output)) is None
    found, said = go_on(output)
    assert found == str(output / "model.ckpt-30")
    assert said == ["training continues from the newest sound checkpoint, model.ckpt-30"]
    state = tf.train.get_checkpoint_state(str(output))
    assert all(path.startswith(f"{output}/model") for path in state.all_model_checkpoint_paths)


def test_a_checkpoint_with_nan_is_not_restored(output):
    save(output, 30, float("nan"))
    found, said = go_on(output)
    assert found == str(output / "model.ckpt-20")
    assert "model.ckpt-30 is damaged (model/kernel" in said[0]
    assert "is NaN or infinite" in said[0]


def test_nothing_sound_is_an_error_that_changes_nothing(output):
    for path in output.glob(f"model.ckpt-*.{DATA}"):
        flip_bit(path)
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"model\.ckpt-30 is damaged \(.*\), and .* has no other "):
        recovery.checkpoint_to_continue(str(output), pytest.fail)
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before


def test_without_checkpoints_nothing_is_continued_nor_followed_elsewhere(tmp_path):
    assert recovery.checkpoint_to_continue(str(tmp_path / "absent"), pytest.fail) is None
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "../other/model.ckpt-30"\n')
    said: list[str] = []
    assert recovery.checkpoint_to_continue(str(tmp_path), said.append) is None
    path = f"{tmp_path}/checkpoint"
    assert said == [f"{path} is of an older run; it is now {path}.older"]


def settle(output: pathlib.Path, start_step: int, validates: bool = True) -> list[str]:
    said: list[str] = []
    recovery.settle_best(str(output), start_step, validates, said.append)
    return said


def test_the_best_of_an_older_run_is_not_the_best_of_a_new_one(output):
    assert settle(output, 0) == [f"{output}/best is of an older run; it is now {output}/best.older"]
    assert checkpoints.best(str(output)) is None
    assert value(str(output / "best.older/model.ckpt-20")) == 2.0
    checkpoints.keep_if_best(str(output), str(output / "model.ckpt-10"), 10, 0.5)
    assert settle(output, 0)[0].endswith(f"it is now {output}/best.older-2")


def test_the_best_is_set_aside_if_the_run_continues_without_validation(output):
    (line,) = settle(output, 10, validates=False)
    assert line.endswith(f"checkpoint is the last; {output}/best is now {output}/best.older")
    assert checkpoints.best(str(output)) is None
    assert settle(output, 10, validates=False) == []


def test_training_does_not_go_on_beside_a_damaged_best(output):
    flip_bit(output / f"best/model.ckpt-20.{DATA}")
    words = rf"model\.ckpt-20 is damaged \(.+\); move {output}/best away$"
    with pytest.raises(DamagedError, match=words):
        settle(output, 30)
    (output / "best/best.json").write_text("[]")
    with pytest.raises(DamagedError, match="best.json is damaged .it names no step, accuracy and"):
        settle(output, 30)


READ = ("metrics.jsonl", "best/best.json", "checkpoint", f"model.ckpt-10.{DATA}")


@pytest.mark.parametrize("name", READ)
def test_what_may_not_be_read_keeps_its_name(name):
    with open_folder() as folder:
        checkpoint = save(folder, 10)
        checkpoints.keep_if_best(str(folder), checkpoint, 10, 0.5)
        (folder / "metrics.jsonl").write_text("")
        (folder / name).chmod(0)
        folder.chmod(0o777)  # Whoever may write to a folder may rename what is in it.
        before = sorted(folder.iterdir())
        said: list[str] = []

        def go_on() -> None:
            recovery.checkpoint_to_continue(str(folder), said.append)
            recovery.settle_best(str(folder), 10, True, said.append)
            Metrics(str(folder))

        with unprivileged(), pytest.raises(tf.errors.PermissionDeniedError):
            go_on()
        assert sorted(folder.iterdir()) == before
        assert said == []


def paths(folder: pathlib.Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("has_evaluator", [False, True])
def test_what_a_kill_left_half_written_is_removed(tmp_path: pathlib.Path, has_evaluator) -> None:
    checkpoints.keep_if_best(str(tmp_path), save(tmp_path / "run", 20), 20, 0.5)
    kept = {
        "checkpoint",
        "model.ckpt-150.data-00000-of-00001",
        "model.ckpt-150.index",
        "model.ckpt-75.index.damaged",
        "notes.tempstate1",
        "metrics_evaluator.jsonl.0a1b2c3d.part",
        ".0a1b2c3d.write-probe",
        "best/notes.txt",
        "export/1795919182/saved_model.pb",
        "export/.export-5e9c/saved_model.pb",
    }
    unfinished = {
        "checkpoint.tmp0a1b2c3d4e5f",
        "model.ckpt-150.data-00000-of-00001.tempstate18402367563360792711",
        "model.ckpt-300.index.tempstate7",
        "run.json.0a1b2c3d.part",
        "export/.part-5e9c/variables/variables.index",
    }
    of_evaluator = {
        "best/copy.index.0a1b2c3d.part",
        f"best/model.ckpt-200.{DATA}",
        "best/best.json.0a1b2c3d.part",
    }
    left = paths(tmp_path) | kept | (of_evaluator if has_evaluator else set())
    for name in kept | unfinished | of_evaluator:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    recovery.remove_unfinished(str(tmp_path), has_evaluator)
    assert paths(tmp_path) == left
    assert not (tmp_path / "export/.part-5e9c").exists()


def test_what_its_process_renames_meanwhile_is_not_missed(tmp_path, monkeypatch):
    (tmp_path / "run.json.0a1b2c3d.part").touch()
    isdir = tf.io.gfile.isdir

    def after_its_process(path: str) -> bool:
        if path.endswith(".part"):
            pathlib.Path(path).rename(tmp_path / "run.json")
        return bool(isdir(path))

    monkeypatch.setattr(tf.io.gfile, "isdir", after_its_process)
    recovery.remove_unfinished(str(tmp_path), True)
    assert paths(tmp_path) == {"run.json"}
