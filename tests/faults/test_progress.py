"""Steps reached and lost, from a launcher's output."""

from tests.faults.progress import lost_in, reached_in, starts_in

BEGIN = """\
run 20261124-212404-9399: /state
[master/0 localhost] training to step 600; output: out
[worker/0 localhost] training to step 600; output: out
[worker/0 localhost] epoch 14.4/333.3  step 26/600  loss 2.374
[master/0 localhost] epoch 14.4/333.3  step 26/600  loss 2.399
[worker/0 localhost] epoch 97.8/333.3  step 1,176/2,600  loss 1.745
"""


def test_the_step_reached_is_the_highest_of_all_trainers() -> None:
    assert reached_in("") == 0
    assert reached_in(BEGIN) == 1176


def test_training_without_a_break_loses_nothing() -> None:
    assert lost_in(BEGIN, 25) == 0


def test_a_lead_that_begins_again_loses_the_steps_since_its_checkpoint() -> None:
    again = BEGIN + "[master/0 localhost] continuing at step 1,150 of 2,600; output: out\n"
    assert starts_in(again) == [0, 1150]
    assert lost_in(again, 25) == 26
    assert lost_in(again + "[worker/0 localhost] epoch 9  step 1,175/2,600  loss 1\n", 25) == 26


def test_a_lead_that_begins_anew_loses_everything() -> None:
    assert lost_in(BEGIN + "[chief/0 node1] training to step 600; output: out\n", 25) == 1176


def test_trainers_that_go_back_to_a_checkpoint_lose_its_steps_once() -> None:
    back = "".join(
        f"[{task}/0 localhost] epoch 98  step {step}/2,600  loss 1.7\n"
        for step in ("1,026", "1,051")
        for task in ("worker", "master")
    )
    assert lost_in(BEGIN + back, 25) == 1176 - 1001


def test_a_worker_that_begins_again_loses_nothing() -> None:
    again = "[worker/0 localhost] training to step 600; output: out\n"
    again += "[worker/0 localhost] epoch 98  step 1,170/2,600  loss 1.7\n"
    assert lost_in(BEGIN + again, 25) == 0
