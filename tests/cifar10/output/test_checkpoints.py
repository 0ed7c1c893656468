"""One whole best checkpoint is kept, whatever happens; the right one is found again."""

import pathlib
import shutil
from typing import Any, Optional

import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import UnreadableError, UserError
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


def test_the_first_checkpoint_is_the_best_so_far(saved, tmp_path):
    output = str(tmp_path)
    assert checkpoints.best(output) is None
    assert checkpoints.keep_if_best(output, saved[10], 10, 0.5)
    best = checkpoints.best(output)
    assert best == checkpoints.Best(10, 0.5, f"{output}/best/model.ckpt-10")
    assert value(best.path) == 1.0


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


@pytest.mark.parametrize("accuracy", [0.5, 0.4], ids=["equal", "worse"])
def test_of_equal_ones_the_first_stays_the_best(saved, tmp_path, accuracy):
    output = str(tmp_path)
    checkpoints.keep_if_best(output, saved[10], 10, 0.5)
    assert not checkpoints.keep_if_best(output, saved[20], 20, accuracy)
    assert checkpoints.best(output).step == 10


def test_a_step_whose_number_begins_alike_is_another_checkpoint(saved, tmp_path):
    run = tmp_path / "run"
    save(run, 100, 3.0)
    checkpoints.keep_if_best(str(tmp_path), save(run, 1, 4.0), 1, 0.5)
    kept = sorted(path.name for path in (tmp_path / "best").iterdir())
    assert kept == ["best.json", "model.ckpt-1.data-00000-of-00001", "model.ckpt-1.index"]


def test_the_same_step_may_come_again_with_a_better_model(saved, tmp_path):
    output = str(tmp_path)
    for number, checkpoint in enumerate([saved[10], saved[20], saved[10], saved[20]]):
        assert checkpoints.keep_if_best(output, checkpoint, 10, 0.5 + 0.1 * number)
        best = checkpoints.best(output)
        assert (best.step, value(best.path)) == (10, value(checkpoint))
        assert len(list((tmp_path / "best").iterdir())) == 3


class Killed(BaseException):
    """Stands in for SIGKILL: nothing catches it."""


class KillAt:
    """Lets `count` changes of files happen; the next one is begun and cut off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.count = count
        for name in ("copy", "rename", "remove"):
            monkeypatch.setattr(tf.io.gfile, name, self._counted(getattr(tf.io.gfile, name)))

    def _counted(self, change: Any) -> Any:
        def counted(path: str, *arguments: Any, **options: Any) -> None:
            self.count -= 1
            if self.count < 0:
                if change.__name__.startswith("copy"):
                    pathlib.Path(arguments[0]).write_bytes(pathlib.Path(path).read_bytes()[:5])
                raise Killed
            change(path, *arguments, **options)

        return counted


@pytest.mark.parametrize("step", [20, 10], ids=["another step", "the same step"])
def test_a_kill_at_any_moment_leaves_one_whole_best_checkpoint(saved, tmp_path, monkeypatch, step):
    moments = []
    for count in range(100):
        output = str(tmp_path / str(count))
        checkpoints.keep_if_best(output, saved[10], 10, 0.5)
        with monkeypatch.context() as patch:
            kill = KillAt(patch, count)
            try:
                checkpoints.keep_if_best(output, saved[20], step, 0.6)
            except Killed:
                pass
            else:
                assert kill.count == 0
                break
        best = checkpoints.best(output)
        assert (best.accuracy, value(best.path)) in [(0.5, 1.0), (0.6, 2.0)]
        moments.append(best.accuracy)
        # The next best one clears up what is left over.
        checkpoints.keep_if_best(output, saved[10], step + 1, 0.7)
        assert value(checkpoints.best(output).path) == 1.0
        assert len(list((pathlib.Path(output) / "best").glob("model.ckpt*"))) == 2
    # Two copies and the note come first, then the two old files go.
    assert moments == [0.5, 0.5, 0.5, 0.6, 0.6]


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


def test_latest_is_the_last_checkpoint_that_was_saved(saved, tmp_path):
    folder = pathlib.Path(saved[20]).parent
    assert checkpoints.latest(str(folder)) == saved[20]
    assert checkpoints.latest(str(tmp_path)) is None


def test_a_run_may_be_moved_with_its_checkpoints(tmp_path):
    save(tmp_path / "here", 5)
    (tmp_path / "here").rename(tmp_path / "there")
    assert checkpoints.latest(str(tmp_path / "there")) == f"{tmp_path}/there/model.ckpt-5"


def test_counters_are_read_from_a_checkpoint_and_begin_at_zero(saved):
    assert checkpoints.read_counter(saved[20], "global_step") == 20
    assert checkpoints.read_counter(None, "global_step") == 0


def test_the_latest_step_is_that_of_a_newer_checkpoint_if_the_latest_is_removed_meanwhile(
    monkeypatch, tmp_path
):
    first = save(tmp_path, 10)
    latest = checkpoints.latest

    def latest_and_then_training_goes_on(output_dir: str) -> Optional[str]:
        found = latest(output_dir)
        if found == first:
            save(tmp_path, 20)
            for path in tmp_path.glob("model.ckpt-10.*"):
                path.unlink()
        return found

    monkeypatch.setattr(checkpoints, "latest", latest_and_then_training_goes_on)
    assert checkpoints.latest_step(str(tmp_path)) == 20


def test_the_latest_step_of_nothing_is_0_and_of_a_damaged_checkpoint_is_refused(tmp_path):
    assert checkpoints.latest_step(str(tmp_path)) == 0
    pathlib.Path(f"{save(tmp_path, 5)}.index").write_bytes(b"damaged")
    with pytest.raises(UserError, match="model.ckpt-5 is damaged"):
        checkpoints.latest_step(str(tmp_path))


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_a_checkpoint_that_goes_while_it_is_kept_leaves_the_best_as_it_was(saved, tmp_path, ending):
    checkpoints.keep_if_best(str(tmp_path), saved[10], 10, 0.5)
    gone = save(tmp_path, 20)
    pathlib.Path(f"{gone}.{ending}").unlink()
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
        checkpoints.read_counter(checkpoint, "global_step")
    assert str(refused.value).startswith(f"{checkpoint} is damaged (")
    assert str(refused.value).endswith("start training again, which goes back to a sound one")
    assert "\n" not in str(refused.value)


def test_parameters_are_the_trainable_numbers_of_the_model(saved):
    # kernel 2 x 3 and bias 5; no momentum, no moving mean, no input statistics.
    assert checkpoints.count_parameters(saved[10]) == 11


def test_find_prefers_the_flag_then_the_best_then_the_latest(saved, tmp_path):
    output = str(tmp_path)
    latest = save(tmp_path, 30)
    assert checkpoints.find(TrainConfig(output_dir=output)) == latest
    checkpoints.keep_if_best(output, saved[10], 10, 0.5)
    assert checkpoints.find(TrainConfig(output_dir=output)) == f"{output}/best/model.ckpt-10"
    given = TrainConfig(mode="evaluate", output_dir=output, checkpoint=saved[20])
    assert checkpoints.find(given) == saved[20]


def test_a_checkpoint_that_a_better_one_replaces_while_it_is_used_is_not_missed(saved, tmp_path):
    config = TrainConfig(output_dir=str(tmp_path))
    output, used = str(tmp_path), []
    checkpoints.keep_if_best(output, saved[10], 10, 0.5)

    def use(checkpoint: str) -> float:
        used.append(checkpoint.rpartition("/")[2])
        if len(used) == 1:
            checkpoints.keep_if_best(output, saved[20], 20, 0.6)
        return value(checkpoint)

    assert checkpoints.with_found(config, use) == value(saved[20])
    assert used == ["model.ckpt-10", "model.ckpt-20"]


def test_a_checkpoint_that_cannot_be_used_is_tried_once(saved, tmp_path):
    config = TrainConfig(output_dir=str(tmp_path))
    checkpoints.keep_if_best(str(tmp_path), saved[10], 10, 0.5)
    used = []

    def use(checkpoint: str) -> None:
        used.append(checkpoint)
        raise UserError("no")

    with pytest.raises(UserError, match="^no$"):
        checkpoints.with_found(config, use)
    assert len(used) == 1


def test_a_checkpoint_may_be_named_from_the_work_dir(saved):
    folder = pathlib.Path(saved[20]).parent
    config = TrainConfig(mode="evaluate", work_dir=str(folder), checkpoint="model.ckpt-20")
    assert checkpoints.find(config) == saved[20]


def test_a_folder_without_checkpoint_is_refused(tmp_path):
    with pytest.raises(UserError) as refused:
        checkpoints.find(TrainConfig(output_dir=str(tmp_path)))
    assert str(refused.value) == (
        f"no checkpoint in {tmp_path}; train first, or name another folder by --output-dir"
    )


def test_a_checkpoint_of_another_folder_is_not_found(tmp_path):
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "../v/model.ckpt-10"\n')
    with pytest.raises(UserError, match=r"/checkpoint is damaged \(it names '.*/\.\./v/model"):
        checkpoints.find(TrainConfig(output_dir=str(tmp_path)))


def test_a_checkpoint_that_does_not_exist_is_refused(saved):
    path = f"{saved[20]}.index"
    with pytest.raises(UserError, match="does not exist; name it without the ending, for example"):
        checkpoints.find(TrainConfig(mode="evaluate", checkpoint=path))


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
    best = checkpoints.best(output)
    assert best is not None
    assert (best.step, value(best.path)) == (20, 2.0)


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


def test_what_a_kill_left_half_written_does_not_become_part_of_the_best(saved, tmp_path):
    output = tmp_path / "run"
    shutil.copytree(pathlib.Path(saved[10]).parent, output)
    (output / "model.ckpt-10.data-00000-of-00001.tempstate42").touch()
    checkpoints.keep_if_best(str(output), f"{output}/model.ckpt-10", 10, 0.5)
    assert sorted(path.name for path in (output / "best").iterdir()) == [
        "best.json",
        "model.ckpt-10.data-00000-of-00001",
        "model.ckpt-10.index",
    ]


@pytest.mark.parametrize(
    ("closed", "named"),
    [
        ("best", "best/best.json"),
        ("best/best.json", "best/best.json"),
        (".", "best/best.json"),
    ],
)
def test_the_last_step_does_not_stand_in_for_a_best_one_that_may_not_be_read(saved, closed, named):
    with open_folder() as folder:
        save(folder, 30)
        checkpoints.keep_if_best(str(folder), saved[20], 20, 0.5)
        (folder / closed).chmod(0)
        with unprivileged(), pytest.raises(UnreadableError, match="Permission denied") as refused:
            checkpoints.find(TrainConfig(mode="evaluate", output_dir=str(folder)))
        (folder / closed).chmod(0o755)
    assert str(refused.value).startswith(f"{folder}/{named} cannot be read: ")


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_a_checkpoint_that_may_not_be_read_is_not_called_damaged(ending):
    with open_folder() as folder:
        checkpoint = save(folder, 5)
        pathlib.Path(f"{checkpoint}.{ending}").chmod(0)
        with unprivileged(), pytest.raises(UnreadableError) as refused:
            checkpoints.read_counter(checkpoint, "global_step")
    assert str(refused.value).startswith(f"{checkpoint}.{ending} cannot be read: ")


def test_a_name_that_may_not_be_read_is_not_a_missing_checkpoint():
    with open_folder() as folder:
        save(folder, 5)
        (folder / "checkpoint").chmod(0)
        with unprivileged(), pytest.raises(UnreadableError) as refused:
            checkpoints.find(TrainConfig(mode="evaluate", output_dir=str(folder)))
    assert str(refused.value).startswith(f"{folder}/checkpoint cannot be read: ")
