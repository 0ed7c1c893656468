"""The line of the job, and what is left of a task's last line."""

import pytest

from launch.screen.job_line import count_states, duration, job_line, own_words, without_speed
from launch.screen.row import Row

MASTERS = (
    "epoch 1.7/4  step 123/282  loss 0.748  accuracy 0.787  lr 0.0605  944 images/s (472 here)  "
    "22s left"
)
WORKERS = MASTERS.replace("944", "767").replace("472", "383").replace("22s", "26s")


def row(task: str, step: str = "", rate: str = "", last: str = "", state: str = "running") -> Row:
    return Row(task, "node0", state, step, rate, last)


def test_the_job_has_one_speed_that_of_its_lead() -> None:
    rows = [
        row("ps/0", last="ps/0 serves at 127.0.0.1:2223"),
        row("worker/0", "124/282", "767", WORKERS),
        row("master/0", "123/282", "944", MASTERS),
    ]
    assert job_line(rows, 60) == "step 123/282   944 images/s   22s left   1m00s elapsed"


def test_without_a_step_of_the_lead_another_trainer_stands_for_the_job() -> None:
    rows = [row("chief/0"), row("worker/0", "124/282", "767", "its 13 images are left")]
    assert job_line(rows, 5) == "step 124/282   767 images/s   5s elapsed"


def test_before_the_first_step_the_job_starts() -> None:
    assert job_line([], 3.9) == "starting   3s elapsed"
    assert job_line([row("master/0")], 75) == "starting   1m15s elapsed"


def test_without_a_time_there_is_none() -> None:
    assert job_line([row("master/0", "1/2")]) == "step 1/2"
    assert job_line([row("master/0")]) == ""


@pytest.mark.parametrize(
    ("secs", "words"),
    [(0, "0s"), (59.9, "59s"), (252, "4m12s"), (3780, "1h03m"), (187_200, "2d04h")],
)
def test_durations_have_two_units(secs: float, words: str) -> None:
    assert duration(secs) == words


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (MASTERS, "epoch 1.7/4  loss 0.748  accuracy 0.787  lr 0.0605"),
        ("step 3/60  loss 2.1  9.5 img/s", "loss 2.1"),
        ("Epoch 1 Step 1,024 / 80,000: loss=2.1", "Epoch 1 : loss=2.1"),
        ("training to step 282; output: demo/output", "training to step 282; output: demo/output"),
        ("validation accuracy 0.8890 at step 282", "validation accuracy 0.8890 at step 282"),
    ],
)
def test_a_row_repeats_neither_step_nor_speed_nor_the_time_left(last: str, words: str) -> None:
    assert own_words(row("master/0", "123/282", "944", last)) == words


def test_a_progress_line_above_the_table_has_no_speed() -> None:
    words = "epoch 1.7/4  step 123/282  loss 0.748  accuracy 0.787  lr 0.0605"
    assert without_speed(MASTERS) == words
    assert without_speed("reads 9 images/s") == "reads 9 images/s"


def test_a_row_without_a_step_keeps_its_line() -> None:
    assert own_words(row("ps/0", last="step 1/2 of the start")) == "step 1/2 of the start"


def test_states_are_counted_without_their_remarks() -> None:
    rows = [row("a/0", state="running (2 restarts)"), row("a/1"), row("a/2", state="failed")]
    assert count_states(rows) == "2 running, 1 failed"
