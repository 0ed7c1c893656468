"""One whole best checkpoint is kept, whatever happens; the right one is found again."""

import pathlib
import shutil

import pytest
import tensorflow.compat.v1 as tf

from cifar10.errors import UserError
from cifar10.host import files
from cifar10.output import checkpoints
from tests.cifar10.saved import save, value
from tests.failing_disk import every_rename_is_synced, failures_of
from tests.unprivileged import open_folder, unprivileged


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Checkpoints of steps 10 and 20, which hold 1.0 and 2.0."""
    folder = tmp_path_factory.mktemp("run")
    return {10: save(folder, 10, 1.0), 20: save(folder, 20, 2.0)}


def test_a_better_one_takes_the_place_of_the_best(saved, tmp_path):
    output = str(tmp_path)
    checkpoints.keep_if_best(output, saved[10], 10, 0.5)
    assert checkpoints.keep_if_best(output, saved[20], 20, 0.6)
    best = checkpoints.best(output)
    assert (best.step, best.accuracy, value(best.path)) == (20, 0.6, 2.0)
    assert sorted(path.name for path in (tmp_path / "best").iterdir()) == [
        "best.json",
        "model.ckpt-20.data-00000-of-00001",
        "model.ckpt-20.index",
    ]


def test_the_best_may_lie_anywhere_that_gfile_opens(saved):
    assert checkpoints.keep_if_best("ram://run", saved[10], 10, 0.5)
    assert checkpoints.keep_if_best("ram://run", saved[20], 20, 0.6)
    best = checkpoints.best("ram://run")
    assert best.path == "ram://run/best/model.ckpt-20"
    assert value(best.path) == 2.0


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


def test_parameters_are_the_trainable_numbers_of_the_model(saved):
    # kernel 2 x 3 and bias 5; no momentum, no moving mean, no input statistics.
    assert checkpoints.count_parameters(saved[10]) == 11


def test_find_prefers_the_flag_then_the_best_then_the_latest(saved, tmp_path):
    output = str(tmp_path)
    latest = save(tmp_path, 30)
    assert checkpoints.find(output) == latest
    checkpoints.keep_if_best(output, saved[10], 10, 0.5)
    assert checkpoints.find(output) == f"{output}/best/model.ckpt-10"
    assert checkpoints.find(output, saved[20]) == saved[20]


def test_a_checkpoint_that_a_better_one_replaces_while_it_is_used_is_not_missed(saved, tmp_path):
    output, used = str(tmp_path), []
    checkpoints.keep_if_best(output, saved[10], 10, 0.5)

    def use(checkpoint: str) -> float:
        used.append(checkpoint.rpartition("/")[2])
        if len(used) == 1:
            checkpoints.keep_if_best(output, saved[20], 20, 0.6)
        return value(checkpoint)

    assert checkpoints.with_found(str(tmp_path), None, use) == value(saved[20])
    assert used == ["model.ckpt-10", "model.ckpt-20"]


def test_a_checkpoint_that_does_not_exist_is_refused(saved, tmp_path):
    with pytest.raises(UserError, match="does not exist; name it without the ending, for example"):
        checkpoints.find("output", f"{saved[20]}.index")
    with pytest.raises(UserError) as refused:
        checkpoints.find(str(tmp_path))
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
    output = str(tmp_path)
    synced = []
    real = files.sync
    with pytest.MonkeyPatch.context() as patch, every_rename_is_synced() as renamed:
        patch.setattr(checkpoints, "sync", lambda path: (synced.append(path), real(path)))
        checkpoints.keep_if_best(output, saved[10], 10, 0.5)
    assert renamed == [f"{output}/best/best.json"]
    assert synced == [
        f"{output}/best/model.ckpt-10.{ending}" for ending in ("data-00000-of-00001", "index")
    ]


def test_names_that_may_not_be_read_are_not_missing():
    with open_folder() as folder:
        save(folder, 30)
        (folder / "checkpoint").chmod(0)
        with unprivileged(), pytest.raises(tf.errors.PermissionDeniedError):
            checkpoints.latest(str(folder))


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_a_checkpoint_that_may_not_be_read_is_not_damaged(ending):
    with open_folder() as folder:
        path = save(folder, 30)
        (folder / f"model.ckpt-30.{ending}").chmod(0)
        with unprivileged(), pytest.raises(tf.errors.PermissionDeniedError):
            checkpoints.read_counter(path, "global_step")
