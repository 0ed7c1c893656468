"""The last complete step is saved while the chief's step waits for a replica that hangs."""

import contextlib
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import TrainingError
from cifar10.host.activity import BETWEEN, STEP, Activity
from cifar10.output import checkpoints
from cifar10.output.recovery import checkpoint_to_continue
from cifar10.run.hooks import step_probe
from cifar10.run.hooks.step_probe import StepProbe, within
from cifar10.run.rescue import Rescue
from cifar10.step import model_fn
from cifar10.step.params import ModelParams
from tests.cifar10 import steps
from tests.cifar10.replica_threads import WAIT_SECS, at_the_same_time, place
from tests.cifar10.steps import make_batches, make_plan

HALF = 6
SETTINGS: dict[str, Any] = {"model": "mlp", "learning_rate": 0.01, "warmup_epochs": 0.0}
BATCHES = make_batches(4)


class Chief:
    """A chief that trains on the first halves of all batches, in a thread of its own.

    Attributes:
      rescue: what saves.
      probe: what looks into its steps.
    """

    def __init__(self, target: str, folder: pathlib.Path) -> None:
        self.target, self.folder = target, str(folder)
        self.activity, self.kept = Activity(), 0
        self.probe = StepProbe(self.activity)
        self.is_owner = True
        self.rescue = Rescue(self.folder, self.activity, self.probe, self.check, self.keep)
        self.graph, self.spec, self._images, self._labels = build(0)

    def check(self) -> None:
        if not self.is_owner:
            raise TrainingError("the folder is another run's")

    def keep(self) -> None:
        self.kept += 1

    def train(self) -> None:
        with self.graph.as_default():
            creator = tf.train.ChiefSessionCreator(self.spec.scaffold, self.target)
            hooks = [self.probe, self.rescue, *self.spec.training_chief_hooks]
            with tf.train.MonitoredSession(creator, hooks) as session:
                raw = session.run_step_fn(lambda step_context: step_context.session)
                saver = self.spec.scaffold.saver
                saver.save(raw, f"{self.folder}/model.ckpt", 0, write_meta_graph=False)
                for images, labels in BATCHES:
                    feed = {self._images: images[:HALF], self._labels: labels[:HALF]}
                    session.run(self.spec.train_op, feed)

    def wait_until_it_waits(self, step: int) -> None:
        """Waits until the chief's own gradient of the step after `step` is in."""
        until = time.monotonic() + WAIT_SECS
        while not self._waits(step):
            assert time.monotonic() < until
            time.sleep(0.01)

    def _waits(self, step: int) -> bool:
        # Before the first step, the rounds of all are 0, which is equal, but no round has begun.
        if not self.activity.is_in_step:
            return False
        state, standing = self.probe.quiet_state(), self.probe.standing()
        return bool(state and state[1] == step and standing and standing[0])


def build(replica: int) -> tuple[tf.Graph, Any, Any, Any]:
    graph = tf.Graph()
    with graph.as_default():
        tf.set_random_seed(1)
        tf.train.create_global_step()
        images = tf.placeholder(tf.uint8, [HALF, 32, 32, 3])
        labels = tf.placeholder(tf.int64, [HALF])
        config = TrainConfig(train_batch_size=HALF, **SETTINGS)
        params = ModelParams(config, make_plan(1), 1000, 100, replication=place(replica))
        spec = model_fn.model_fn(images, labels, tf.estimator.ModeKeys.TRAIN, params)
    return graph, spec, images, labels


class Worker:
    """A worker whose steps a test takes one by one."""

    def __init__(self, target: str) -> None:
        self._graph, self._spec, self._images, self._labels = build(1)
        self._session = tf.Session(target, self._graph)

    def step(self, number: int) -> None:
        images, labels = BATCHES[number]
        feed = {self._images: images[HALF:], self._labels: labels[HALF:]}
        self._session.run(self._spec.train_op, feed)


@contextlib.contextmanager
def hanging(target: str, folder: pathlib.Path) -> Iterator[Chief]:
    """Yields a chief that waits in its fourth step for the worker, which goes on at the end."""
    chief, worker = Chief(target, folder), Worker(target)
    with at_the_same_time(chief.train):
        chief.wait_until_it_waits(0)
        for number in range(3):
            worker.step(number)
        chief.wait_until_it_waits(3)
        yield chief
        worker.step(3)


@pytest.fixture
def target() -> str:
    return str(tf.train.Server.create_local_server().target)


def test_what_is_saved_is_the_last_complete_step(target, tmp_path) -> None:
    with hanging(target, tmp_path) as chief:
        told = chief.rescue.save()
        assert told == "; step 3 is saved, and the next start continues from it"
        assert chief.kept == 1
        again = chief.rescue.save()
        assert again == told
        assert chief.kept == 1
    found = checkpoint_to_continue(str(tmp_path), print)
    assert found == f"{tmp_path}/model.ckpt-3"
    state = tf.train.get_checkpoint_state(str(tmp_path))
    names = [path.rsplit("/", 1)[-1] for path in state.all_model_checkpoint_paths]
    assert names == ["model.ckpt-0", "model.ckpt-3"]
    # The same as one process that has trained on three joint batches, slots included.
    with steps.training(TrainConfig(train_batch_size=2 * HALF, **SETTINGS), make_plan(1)) as run:
        for batch in BATCHES[:3]:
            run.step(batch)
        alone = run.saved()
    assert steps.largest_difference(steps.read_checkpoint(found), alone) < 1e-5


def test_a_checkpoint_during_which_an_update_ran_is_removed(target, tmp_path, monkeypatch) -> None:
    with hanging(target, tmp_path) as chief:
        states = iter([(2 * number, 3) for number in range(100)])
        monkeypatch.setattr(chief.probe, "quiet_state", lambda: next(states))
        told = chief.rescue.save()
        monkeypatch.undo()
    assert told == "; nothing was saved, since an update is not complete"
    assert checkpoints.latest_step(str(tmp_path)) == 0
    assert list(tmp_path.glob("model.ckpt-3*")) == []


def test_an_update_that_is_not_complete_is_not_saved(target, tmp_path, monkeypatch) -> None:
    with hanging(target, tmp_path) as chief:
        monkeypatch.setattr(chief.probe, "quiet_state", lambda: None)
        assert chief.rescue.save() == "; nothing was saved, since an update is not complete"
        monkeypatch.undo()
    assert checkpoints.latest_step(str(tmp_path)) == 0


def test_nothing_is_saved_into_a_folder_of_another_run(target, tmp_path) -> None:
    with hanging(target, tmp_path) as chief:
        chief.is_owner = False
        assert chief.rescue.save() == (
            "; nothing was saved, since saving failed (the folder is another run's)"
        )
    assert checkpoints.latest_step(str(tmp_path)) == 0


def test_a_main_thread_that_is_not_in_a_step_saves_by_itself(tmp_path) -> None:
    noted = Activity()
    rescue = Rescue(str(tmp_path), noted, StepProbe(noted), lambda: None, lambda: None)
    assert rescue.save() == ""


def test_a_step_that_ends_while_another_thread_saves_waits_for_that(target, tmp_path) -> None:
    chief, worker = Chief(target, tmp_path), Worker(target)
    saving, released = threading.Event(), threading.Event()
    order: list[str] = []

    def keep() -> None:
        saving.set()
        released.wait(WAIT_SECS)
        order.append("saved")

    def train() -> None:
        chief.train()
        order.append("went on")

    chief.rescue._keep = keep
    with at_the_same_time(train):
        chief.wait_until_it_waits(0)
        for number in range(3):
            worker.step(number)
        chief.wait_until_it_waits(3)
        saver = threading.Thread(target=chief.rescue.save)
        saver.start()
        assert saving.wait(WAIT_SECS)
        worker.step(3)
        until = time.monotonic() + WAIT_SECS
        while chief.activity.phase != BETWEEN:
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(0.5)  # Time to go on, which it must not use.
        released.set()
        saver.join(WAIT_SECS)
    assert order == ["saved", "went on"]
    assert checkpoints.latest_step(str(tmp_path)) == 3


def test_a_step_that_ends_before_another_thread_saves_is_saved_by_the_main_thread(tmp_path) -> None:
    noted, begun, told = Activity(), threading.Event(), []
    noted.begin(STEP)
    rescue = Rescue(str(tmp_path), noted, StepProbe(noted), begun.set, lambda: None)
    with rescue._saving:  # The other thread has found a step, and not begun to save.
        saver = threading.Thread(target=lambda: told.append(rescue.save()))
        saver.start()
        assert begun.wait(WAIT_SECS)
        noted.begin(BETWEEN)
    saver.join(WAIT_SECS)
    assert told == [""]


def test_a_process_alone_is_quiet_while_it_waits_for_a_batch_and_between_steps(monkeypatch) -> None:
    noted = Activity()
    probe = StepProbe(noted)
    monkeypatch.setattr(probe, "_updates", None, raising=False)
    monkeypatch.setattr(probe, "_num_taken", lambda: 2)
    noted.begin(STEP)
    probe._begun = 3
    assert probe.quiet_state() == (2,)
    probe._begun = 2
    assert probe.quiet_state() is None
    noted.begin(BETWEEN)
    assert probe.quiet_state() == (2,)


def test_variables_that_cannot_be_read_end_the_saving_in_time(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(step_probe, "_ASK_SECS", 0.2)
    noted, released = Activity(), threading.Event()
    probe = StepProbe(noted)
    monkeypatch.setattr(probe, "quiet_state", lambda: within(0.2, released.wait, "reading"))
    noted.begin(STEP)
    rescue = Rescue(str(tmp_path), noted, probe, lambda: None, lambda: None)
    assert rescue.save() == "; nothing was saved, since reading took longer than 0.2 s"
    released.set()
