"""--profile-steps records its steps, whatever the step that training continues from."""

import pathlib

import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.errors import ConfigError
from cifar10.run.hooks.profile import Profile, check_window


def train(
    folder: pathlib.Path, window: tuple[int, int], first: int, steps: int, each: int = 1
) -> list[str]:
    """Takes steps after step `first`; returns what the profile says.

    Other trainers take the rest of `each` meanwhile.
    """
    said: list[str] = []
    profile = Profile(window, str(folder / "train"), said.append)
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.train.create_global_step()
        counted = step.assign_add(each, read_value=True)
        session.run(step.assign(first).op)
        profile.begin(first)
        last = first
        for _ in range(steps):
            profile.step_begins(last)
            last = int(session.run(counted))
            profile.step_ends(last)
        profile.finish(last)
    return said


def test_the_window_has_a_table_and_a_trace_in_a_folder_of_any_name(tmp_path):
    tmp_path = tmp_path / "logs[1]"
    earlier = tmp_path / "train/plugins/profile/2999_01_01_00_00_00/here.xplane.pb"
    earlier.parent.mkdir(parents=True)
    earlier.write_bytes(b"")
    (said,) = train(tmp_path, (3, 5), first=0, steps=8)
    table = (tmp_path / "profile.txt").read_text()
    lines = table.splitlines()
    assert lines[0] == (
        "the 10 most expensive types of op in steps 3 to 5, by self time on all threads"
    )
    assert lines[1].split() == ["op", "calls/step", "ms/step", "share"]
    # The counter is added to once in each step of the window, and in no other.
    (counted,) = [line.split() for line in lines if line.startswith("AssignAddVariableOp ")]
    assert counted[1] == "1.0"
    (trace,) = tmp_path.rglob("*.trace.json.gz")
    assert len(list(trace.parent.glob("*.xplane.pb"))) == 1
    assert said == f"{table}profile: {tmp_path}/profile.txt, and the trace {trace}"


def test_where_others_take_the_whole_window_the_next_step_is_recorded(tmp_path):
    (said,) = train(tmp_path, (3, 5), first=0, steps=4, each=10)
    assert "in steps 11 to 20" in said


@pytest.mark.parametrize(
    ("first", "steps", "recorded"),
    [
        (4, 4, "steps 5 to 5"),
        (2, 2, "steps 3 to 4"),
        (5, 3, None),
        (0, 2, "profile: none; steps 3 to 5 come after step 2"),
    ],
    ids=["within it", "the end comes first", "after it", "before it"],
)
def test_what_is_left_of_the_window_is_recorded(tmp_path, first, steps, recorded):
    said = train(tmp_path, (3, 5), first, steps)
    assert len(said) == (1 if recorded else 0)
    if recorded:
        assert recorded in said[0]
    with pytest.raises(tf2.errors.UnavailableError):
        tf2.profiler.experimental.stop()  # Nothing goes on being recorded.


def test_a_window_beyond_the_end_is_refused():
    check_window((3, 5), 5)
    check_window(None, 1)
    with pytest.raises(ConfigError) as refusal:
        check_window((3, 5), 4)
    assert str(refusal.value) == (
        "--profile-steps must end at the last step or before, got 3:5; training ends at step 4"
    )
