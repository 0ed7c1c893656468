"""One whole best checkpoint is kept, whatever happens; the right one is found again."""

import pathlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Optional

import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import UserError
from cifar10.output import checkpoints
from tests.cifar10.saved import save, value
from tests.failing_disk import every_rename_is_synced, failures_of
from tests.unprivileged import open_folder, unprivileged


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Checkpoints of steps 10 and 20, which hold 1.0 and 2.0."""
    folder = tmp_path_factory.mktemp("run")
    return {10: save(folder, 10, 1.0), 20: save(folder, 20, 2.0)}


def config_of(folder: pathlib.Path, checkpoint: Optional[str] = None) -> TrainConfig:
    return TrainConfig(mode="evaluate", output_dir=str(folder), checkpoint=checkpoint)


@pytest.mark.parametrize("scheme", ["", "ram://"])
def test_a_better_one_takes_the_place_of_the_best(saved, tmp_path, scheme):
    output = f"{scheme}{tmp_path}"
    checkpoints.keep_if_best(output, saved[10], 10, 0.5)
    assert checkpoints.keep_if_best(output, saved[20], 20, 0.6)
    best = checkpoints.best(output)
    assert (best.step, best.accuracy, value(best.path)) == (20, 0.6, 2.0)
    assert sorted(tf.io.gfile.listdir(f"{output}/best")) == [
        "best.json",
        "model.ckpt-20.data-00000-of-00001",
        "model.ckpt-20.index",
    ]


def test_a_best_checkpoint_that_somebody_deleted_is_none(saved, tmp_path):
    checkpoints.keep_if_best(str(tmp_path), saved[10], 10, 0.5)
    for path in (tmp_path / "best").glob("model.ckpt*"):
        path.unlink()
    assert checkpoints.best(str(tmp_path)) is None
    assert checkpoints.keep_if_best(str(tmp_path), saved[20], 20, 0.1)


def test_a_checkpoint_that_goes_while_it_is_kept_leaves_the_best_as_it_was(saved, tmp_path):
    checkpoints.keep_if_best(str(tmp_path), saved[10], 10, 0.5)
    gone = save(tmp_path, 20)
    pathlib.Path(f"{gone}.data-00000-of-00001").unlink()
    with pytest.raises((tf.errors.NotFoundError, UserError)):
        checkpoints.keep_if_best(str(tmp_path), gone, 20, 0.9)
    kept = checkpoints.best(str(tmp_path))
    assert kept is not None
    assert (kept.step, kept.accuracy) == (10, 0.5)


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_a_damaged_checkpoint_is_refused_in_one_line(tmp_path, ending):
    checkpoint = save(tmp_path, 5)
    pathlib.Path(f"{checkpoint}.{ending}").write_bytes(b"damaged")
    with pytest.raises(UserError) as refused:
        checkpoints.latest_step(str(tmp_path))
    assert str(refused.value).startswith(f"{checkpoint} is damaged (")
    assert str(refused.value).endswith("train again, which goes back to a sound one")
    assert "\n" not in str(refused.value)


def test_find_prefers_the_flag_then_the_best_then_the_latest(saved, tmp_path):
    config, latest = config_of(tmp_path), save(tmp_path, 30)
    assert checkpoints.find(config) == latest
    checkpoints.keep_if_best(str(tmp_path), saved[10], 10, 0.5)
    assert checkpoints.find(config) == f"{tmp_path}/best/model.ckpt-10"
    assert checkpoints.find(config_of(tmp_path, saved[20])) == saved[20]


def test_in_a_folder_that_was_moved_the_newest_checkpoint_is_found(tmp_path):
    paths = [save(tmp_path, step) for step in (9, 30, 100)]
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/before/model.ckpt-100"\n')
    assert checkpoints.find(config_of(tmp_path)) == paths[2]
    pathlib.Path(f"{paths[2]}.index").unlink()
    assert checkpoints.find(config_of(tmp_path)) == paths[1]


def test_a_checkpoint_that_a_better_one_replaces_while_it_is_used_is_not_missed(saved, tmp_path):
    output, used = str(tmp_path), []
    checkpoints.keep_if_best(output, saved[10], 10, 0.5)

    def use(checkpoint: str) -> float:
        used.append(checkpoint.rpartition("/")[2])
        if len(used) == 1:
            checkpoints.keep_if_best(output, saved[20], 20, 0.6)
        return value(checkpoint)

    assert checkpoints.with_found(config_of(tmp_path), use) == value(saved[20])
    assert used == ["model.ckpt-10", "model.ckpt-20"]


def test_a_checkpoint_that_does_not_exist_is_refused(saved, tmp_path):
    with pytest.raises(UserError, match="does not exist; name it without the ending, for example"):
        checkpoints.find(config_of(tmp_path, f"{saved[20]}.index"))
    with pytest.raises(UserError) as refused:
        checkpoints.find(config_of(tmp_path))
    assert str(refused.value) == (
        f"no checkpoint in {tmp_path}; train first, or name another folder by --output-dir"
    )


def test_whatever_fails_one_whole_best_checkpoint_is_there(saved, tmp_path):
    output = str(tmp_path)
    checkpoints.keep_if_best(output, saved[10], 10, 0.5)
    failed = 0
    for _ in failures_of(lambda: checkpoints.keep_if_best(output, saved[20], 20, 0.6)):
        failed += 1
        best = checkpoints.best(output)
        assert best is not None
        assert (best.step, value(best.path)) in ((10, 1.0), (20, 2.0))
        shutil.rmtree(tmp_path / "best")
        checkpoints.keep_if_best(output, saved[10], 10, 0.5)
    assert failed >= 10


def test_the_best_checkpoint_is_on_disk_before_it_is_named(saved, tmp_path):
    with every_rename_is_synced() as renamed:
        checkpoints.keep_if_best(str(tmp_path), saved[10], 10, 0.5)
    names = ["model.ckpt-10.data-00000-of-00001", "model.ckpt-10.index", "best.json"]
    assert renamed == [f"{tmp_path}/best/{name}" for name in names]


def test_a_chief_and_an_evaluator_that_keep_the_same_never_break_a_read(saved, tmp_path):
    output, steps = str(tmp_path), 60
    checkpoints.keep_if_best(output, saved[10], 0, 0.0)

    def keep() -> None:
        for step in range(1, steps):
            checkpoints.keep_if_best(output, saved[10 + 10 * (step % 2)], step, step / steps)

    def read(checkpoint: str) -> None:
        assert value(checkpoint) == 1.0 + int(checkpoint.rpartition("-")[2]) % 2

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(keep), pool.submit(keep)]
        reads = 0
        while not all(writer.done() for writer in writers):
            checkpoints.with_found(config_of(tmp_path), read)
            reads += 1
    assert [writer.result() for writer in writers] == [None, None]
    assert reads > 300
    found = sorted(path.name for path in (tmp_path / "best").iterdir())
    assert found == ["best.json", "model.ckpt-59.data-00000-of-00001", "model.ckpt-59.index"]


def test_of_equal_ones_the_first_stays(saved, tmp_path):
    checkpoints.keep_if_best(str(tmp_path), saved[10], 10, 0.5)
    assert not checkpoints.keep_if_best(str(tmp_path), saved[20], 20, 0.5)
    assert checkpoints.best(str(tmp_path)).step == 10


def test_the_best_is_not_written_over_by_a_better_one_of_its_step(saved, tmp_path):
    output = str(tmp_path)
    for accuracy, name in ((0.5, "model.ckpt-10"), (0.6, "model.ckpt-10-again")):
        assert checkpoints.keep_if_best(output, saved[20], 10, accuracy)
        assert checkpoints.best(output).path == f"{output}/best/{name}"
    assert checkpoints.keep_if_best(output, saved[10], 10, 0.7)
    assert value(f"{output}/best/model.ckpt-10") == 1.0
    assert len(list((tmp_path / "best").iterdir())) == 3


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_a_checkpoint_that_may_not_be_read_is_not_damaged(ending):
    with open_folder() as folder:
        path = save(folder, 30)
        (folder / f"model.ckpt-30.{ending}").chmod(0)
        with unprivileged(), pytest.raises(tf.errors.PermissionDeniedError):
            checkpoints.read_counter(path, "global_step")
